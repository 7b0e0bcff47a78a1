// The lists of actions in the answer of `graphpipe schedule --format json`.

#include <limits>
#include <nlohmann/json.hpp>

#include "files/schedule_file.h"
#include "files/strict_json.h"
#include "support/exact_integer.h"
#include "support/text.h"

namespace graphpipe::files {
namespace {

using nlohmann::json;

constexpr JsonLimits kListLimits = {.max_bytes = int64_t{256} << 20, .deepest = 16};

Diagnostic malformed(std::string message) {
  return Diagnostic{.code = Code::kMalformedFile,
                    .message = std::move(message),
                    .hint = "give what `graphpipe schedule --format json` prints"};
}

Result<std::vector<ir::Action>> parse_program(const json& list, size_t device) {
  std::vector<ir::Action> actions;
  Diagnostics problems;
  for (size_t i = 0; i < list.size() && problems.size() < kMaxProblems; ++i) {
    Result<ir::Action> action = list[i].is_string() ? ir::parse_action(list[i].get_ref<const std::string&>())
                                                    : Result<ir::Action>(malformed("is no text"));
    if (action.ok()) actions.push_back(*action);
    else problems.push_back(malformed(text("programs[", device, "][", i, "]: ", action.problems().front().message)));
  }
  if (!problems.empty()) return problems;
  return actions;
}

/// A list of numbers from 0 to `max_value`; none where there is no such member.
Result<std::vector<int64_t>> numbers_member(const json& object, const char* name, int64_t max_value) {
  std::vector<int64_t> numbers;
  const auto list = object.find(name);
  if (list == object.end()) return numbers;
  if (!list->is_array()) return malformed(text(name, ": must be a list"));
  for (const json& number : *list) {
    const int64_t value = number.is_number_integer() ? number.get<int64_t>() : -1;
    if (value < 0 || value > max_value) return malformed(text(name, ": must hold numbers from 0 to ", max_value));
    numbers.push_back(value);
  }
  return numbers;
}

}  // namespace

bool is_schedule_lists(std::string_view source) {
  // The answer's own schema is its last member; a schedule file's is the first, and a file in another order of members
  // still has its digest.
  const size_t begin = std::min(source.find_first_not_of(" \t\r\n{"), source.size());
  const auto holds = [&](std::string_view member) { return source.find(member) != std::string_view::npos; };
  return !source.substr(begin).starts_with("\"schema\"") && holds("\"programs\"") && !holds("\"plan_digest\"");
}

Result<ir::Schedule> parse_schedule_lists(std::string_view source) {
  GP_TRY_VOID(scan_json(source, kListLimits));
  const json object = json::parse(source, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return malformed("the lists of a schedule are members of a JSON object");
  const auto programs = object.find("programs");
  if (programs == object.end() || !programs->is_array()) return malformed("programs: must be a list, one per device");
  ir::Schedule schedule;
  if (const auto policy = object.find("policy"); policy != object.end() && policy->is_string())
    schedule.policy = policy->get<std::string>();
  for (size_t device = 0; device < programs->size(); ++device) {
    const json& list = (*programs)[device];
    if (!list.is_array()) return malformed(text("programs[", device, "]: must be a list of actions"));
    GP_TRY(std::vector<ir::Action> actions, parse_program(list, device));
    schedule.programs.push_back({ir::DeviceId(device), std::move(actions)});
  }
  GP_TRY(const std::vector<int64_t> slots, numbers_member(object, "slots", std::numeric_limits<int>::max()));
  for (const int64_t count : slots) schedule.slots.push_back(static_cast<int>(count));
  GP_TRY(const std::vector<int64_t> starts, numbers_member(object, "starts", kMaxExactInteger));
  for (const int64_t start : starts) schedule.starts.push_back(Ticks(start));
  if (object.contains("slots")) return schedule;
  // Nothing says how many slots a stage has, so the numbers in the actions mean nothing.
  for (ir::Program& program : schedule.programs)
    for (ir::Action& action : program.actions) action.slot = -1;
  return schedule;
}

}  // namespace graphpipe::files
