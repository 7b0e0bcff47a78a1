#include "files/profile.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "files/cluster_message.h"
#include "files/proto_json.h"
#include "files/schema/profile.pb.h"
#include "files/text_file.h"

namespace graphpipe::files {
namespace {

constexpr JsonLimits kMeasuredLimits = {.max_bytes = int64_t{256} << 20, .deepest = 64};
constexpr int32_t kMaxLevels = 64;
constexpr double kMaxMeasured = 1e9;
constexpr double kMaxMeasuredRate = 1e24;

std::optional<Seconds> seconds_of(bool present, double seconds, const std::string& path, FieldProblems& problems) {
  if (!present) return std::nullopt;
  problems.need_range(path, seconds, 0.0, kMaxMeasured);
  return Seconds(seconds);
}

void read_operators(const schema::ProfileFile& message, ir::Profile& profile, FieldProblems& problems) {
  std::set<std::pair<std::string, int32_t>> seen;
  for (int i = 0; i < message.operators_size(); ++i) {
    const schema::OpMeasurement& op = message.operators(i);
    const std::string path = text("operators[", i, "]");
    if (op.signature().empty()) problems.add(path + ".signature", "is empty");
    problems.need_range(path + ".samples", op.samples(), 1, kMaxOfMessage);
    if (!seen.insert({op.signature(), op.samples()}).second)
      problems.add(path, "this signature was measured at ", op.samples(), " samples already");
    const auto seconds = [&](bool present, double number, std::string_view name) {
      return seconds_of(present, number, text(path, ".", name), problems);
    };
    profile.operators.push_back({.signature = decode_name(op.signature()),
                                 .samples = Samples(op.samples()),
                                 .forward = seconds(op.has_forward_seconds(), op.forward_seconds(), "forward_seconds"),
                                 .input_gradient = seconds(op.has_input_gradient_seconds(), op.input_gradient_seconds(),
                                                           "input_gradient_seconds"),
                                 .weight_gradient = seconds(op.has_weight_gradient_seconds(),
                                                            op.weight_gradient_seconds(), "weight_gradient_seconds")});
  }
  std::ranges::sort(profile.operators, {},
                    [](const ir::OpMeasurement& op) { return std::tie(op.signature, op.samples); });
}

void read_links(const schema::ProfileFile& message, ir::Profile& profile, FieldProblems& problems) {
  std::set<int32_t> seen;
  for (int i = 0; i < message.links_size(); ++i) {
    const schema::LinkMeasurement& link = message.links(i);
    const std::string path = text("links[", i, "]");
    problems.need_range(path + ".level", link.level(), 0, kMaxLevels);
    if (!seen.insert(link.level()).second) problems.add(path + ".level", "was measured already");
    problems.need_range(path + ".latency_seconds", link.latency_seconds(), 0.0, kMaxMeasured);
    if (!(link.bytes_per_second() > 0 && link.bytes_per_second() <= kMaxMeasuredRate))
      problems.add(path + ".bytes_per_second", "must be above 0, is ", link.bytes_per_second());
    profile.links.push_back({.level = link.level(),
                             .latency = Seconds(link.latency_seconds()),
                             .bandwidth = BytesPerSecond(link.bytes_per_second())});
  }
  std::ranges::sort(profile.links, {}, &ir::LinkMeasurement::level);
}

}  // namespace

std::string print_profile(const ir::Profile& profile) {
  schema::ProfileFile message;
  message.set_schema("graphpipe.profile/1");
  message.set_model_digest(profile.model_digest);
  message.set_threads(profile.threads);
  for (const ir::OpMeasurement& op : profile.operators) {
    GP_CHECK(op.samples.count >= 1 && op.samples.count <= kMaxOfMessage);
    schema::OpMeasurement& out = *message.add_operators();
    out.set_signature(encode_name(op.signature));
    out.set_samples(static_cast<int32_t>(op.samples.count));
    if (op.forward) out.set_forward_seconds(op.forward->count);
    if (op.input_gradient) out.set_input_gradient_seconds(op.input_gradient->count);
    if (op.weight_gradient) out.set_weight_gradient_seconds(op.weight_gradient->count);
  }
  for (const ir::LinkMeasurement& link : profile.links) {
    schema::LinkMeasurement& out = *message.add_links();
    out.set_level(link.level);
    out.set_latency_seconds(link.latency.count);
    out.set_bytes_per_second(link.bandwidth.count);
  }
  if (profile.runtime != ir::RuntimeCosts{}) fill_message(profile.runtime, *message.mutable_runtime());
  return print_message(message);
}

Result<ir::Profile> parse_profile(std::string_view text_form) {
  schema::ProfileFile message;
  GP_TRY_VOID(parse_message(text_form, "graphpipe.profile", 1, kMeasuredLimits, message));
  FieldProblems problems(Code::kBadProfile, "correct the field, or measure again with `graphpipe profile`");
  ir::Profile profile;
  problems.need_digest("model_digest", profile.model_digest = message.model_digest());
  problems.need_range("threads", message.threads(), 1, kMaxThreads);
  profile.threads = message.threads();
  read_operators(message, profile, problems);
  read_links(message, profile, problems);
  if (message.has_runtime()) profile.runtime = runtime_costs_of(message.runtime(), "runtime", problems);
  if (!problems.empty()) return problems.take();
  return profile;
}

Result<ir::Profile> read_profile(const std::string& path) {
  GP_TRY(const std::string text, read_file(path, kMeasuredLimits.max_bytes));
  Result<ir::Profile> profile = parse_profile(text);
  if (!profile.ok()) return with_origin(profile.problems(), path);
  return profile;
}

Status write_profile(const std::string& path, const ir::Profile& profile) {
  return write_file(path, print_profile(profile));
}

}  // namespace graphpipe::files
