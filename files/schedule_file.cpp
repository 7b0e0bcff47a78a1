#include "files/schedule_file.h"

#include "files/schedule_message.h"
#include "files/schema/schedule.pb.h"
#include "files/text_file.h"

namespace graphpipe::files {
namespace {

// A million actions with all their fields.
constexpr JsonLimits kScheduleLimits = {.max_bytes = int64_t{256} << 20, .deepest = 64};
// As many in the binary form.
constexpr int64_t kMaxBinaryBytes = int64_t{32} << 20;
constexpr std::string_view kName = "graphpipe.schedule";

schema::ScheduleFile message_of(const ScheduleFile& file) {
  schema::ScheduleFile message;
  message.set_schema("graphpipe.schedule/1");
  message.set_plan_digest(file.plan_digest);
  fill_message(file.schedule, *message.mutable_schedule());
  return message;
}

Result<ScheduleFile> file_of(const schema::ScheduleFile& message) {
  FieldProblems problems(Code::kBadSchedule, "correct the field, or make the schedule again with `graphpipe schedule`");
  problems.need_digest("plan_digest", message.plan_digest());
  if (!message.has_schedule()) problems.add("schedule", "is missing");
  ScheduleFile file{.plan_digest = message.plan_digest(),
                    .schedule = schedule_of(message.schedule(), "schedule", problems)};
  if (!problems.empty()) return problems.take();
  return file;
}

}  // namespace

std::string print_schedule_file(const ScheduleFile& file) { return print_message(message_of(file)); }

Result<ScheduleFile> parse_schedule_file(std::string_view text) {
  schema::ScheduleFile message;
  GP_TRY_VOID(parse_message(text, kName, 1, kScheduleLimits, message));
  return file_of(message);
}

std::string print_schedule_binary(const ScheduleFile& file) { return print_binary_message(message_of(file)); }

Result<ScheduleFile> parse_schedule_binary(std::string_view bytes) {
  schema::ScheduleFile message;
  GP_TRY_VOID(parse_binary_message(bytes, kName, 1, kMaxBinaryBytes, message));
  return file_of(message);
}

// The first field is a string of 20 bytes, "graphpipe.schedule/N": its key, its length, the string.
bool is_schedule_binary(std::string_view bytes) {
  return bytes.size() > 2 && bytes[0] == '\x0a' && bytes.substr(2).starts_with(kName);
}

}  // namespace graphpipe::files
