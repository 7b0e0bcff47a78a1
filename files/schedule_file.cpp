#include "files/schedule_file.h"

#include "files/schedule_message.h"
#include "files/schema/schedule.pb.h"
#include "files/text_file.h"

namespace graphpipe::files {
namespace {

// A million actions with all their fields.
constexpr JsonLimits kLimits = {.most_bytes = int64_t{256} << 20, .deepest = 64};

}  // namespace

std::string print_schedule_file(const ScheduleFile& file) {
  schema::ScheduleFile message;
  message.set_schema("graphpipe.schedule/1");
  message.set_plan_digest(file.plan_digest);
  fill_message(file.schedule, *message.mutable_schedule());
  return print_message(message);
}

Result<ScheduleFile> parse_schedule_file(std::string_view text) {
  schema::ScheduleFile message;
  GP_TRY_VOID(parse_message(text, "graphpipe.schedule", 1, kLimits, message));
  FieldProblems problems(Code::kBadSchedule, "correct the field, or make the schedule again with `graphpipe schedule`");
  problems.need_digest("plan_digest", message.plan_digest());
  if (!message.has_schedule()) problems.add("schedule", "is missing");
  ScheduleFile file{.plan_digest = message.plan_digest(),
                    .schedule = schedule_of(message.schedule(), "schedule", problems)};
  if (!problems.empty()) return problems.take();
  return file;
}

Result<ScheduleFile> read_schedule_file(const std::string& path) {
  GP_TRY(const std::string text, read_file(path, kLimits.most_bytes));
  Result<ScheduleFile> file = parse_schedule_file(text);
  if (!file.ok()) return with_origin(file.problems(), path);
  return file;
}

Status write_schedule_file(const std::string& path, const ScheduleFile& file) {
  return write_file(path, print_schedule_file(file));
}

}  // namespace graphpipe::files
