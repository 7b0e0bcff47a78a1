#include "files/pipedream_profile.h"

#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "files/profile_builder.h"
#include "files/text_file.h"
#include "support/text.h"

namespace graphpipe::files {

namespace {

constexpr int64_t kMaxProfileBytes = int64_t{64} << 20;
constexpr std::string_view kSeparator = " -- ";

std::optional<double> number(std::string_view text) {
  double value = 0;
  if (!read_number(text, value) || !std::isfinite(value) || value < 0) return std::nullopt;
  return value;
}

// A number, or "[a; b; ...]" added up.
std::optional<double> sum_of(std::string_view text) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return number(text);
  double sum = 0;
  for (const std::string_view item : split(text.substr(1, text.size() - 2), ";")) {
    const auto value = number(trimmed(item));
    if (!value) return std::nullopt;
    sum += *value;
  }
  return sum;
}

class ProfileReader {
 public:
  Result<ir::ImportedProfile> read(std::string_view text) {
    size_t line_number = 0;
    while (!text.empty() && problems_.size() < kMaxProblems) {
      const size_t end = std::min(text.find('\n'), text.size());
      ++line_number;
      line_ = line_number;
      read_line(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (!problems_.empty()) return problems_;
    GP_TRY_VOID(builder_.check());
    return without_inputs();
  }

 private:
  void problem(std::string message, std::string hint) {
    problems_.push_back({.code = Code::kMalformedFile,
                         .origin = ModelText(text("line ", line_)),
                         .message = std::move(message),
                         .hint = std::move(hint)});
  }

  static std::string shown(std::string_view word) { return quoted(ModelText(std::string(word))); }

  void read_line(std::string_view line) {
    const bool is_edge = !line.empty() && (line.front() == '\t' || line.front() == ' ');
    line = trimmed(line);
    if (line.empty()) return;
    if (is_edge) read_edge(line);
    else read_node(line);
  }

  void read_edge(std::string_view line) {
    const auto ends = split(line, kSeparator);
    if (ends.size() != 2)
      return problem("an indented line is an edge, and this one does not name two nodes", "write <tab>FROM -- TO");
    const auto from = ids_.find(ends[0]), to = ids_.find(ends[1]);
    for (const auto& [found, name] : {std::pair(from, ends[0]), std::pair(to, ends[1])})
      if (found == ids_.end())
        return problem(text("the edge names ", shown(name), ", which no line before lists"),
                       "list nodes before their edges");
    has_reader_.insert(from->second);
    has_input_.insert(to->second);
    builder_.add_edge(from->second, to->second, builder_[from->second].output_bytes);
  }

  void read_node(std::string_view line) {
    const auto fields = split(line, kSeparator);
    if (fields.size() < 3 || fields.size() > 4 || (fields.size() == 4 && !fields[3].starts_with("stage_id=")))
      return problem(text("a node has an id, a description and four numbers, this line has ", fields.size(), " fields"),
                     "write ID -- DESCRIPTION -- forward_compute_time=..., ...");
    ProfileBuilder::Layer layer;
    layer.node.label = ModelText(std::string(fields[0]));
    layer.node.description = ModelText(std::string(fields[1]));
    if (fields[0].empty()) return problem("the node has no id", "start the line with one");
    if (!read_numbers(fields[2], layer)) return;
    const auto [known, is_new] = ids_.emplace(std::string(fields[0]), LayerId(builder_.size()));
    if (!is_new) return problem(text("a second node ", shown(fields[0])), "give each node its own id");
    builder_.add(std::move(layer));
  }

  bool read_numbers(std::string_view field, ProfileBuilder::Layer& layer) {
    static constexpr std::array<std::string_view, 4> kKeys = {"forward_compute_time", "backward_compute_time",
                                                              "activation_size", "parameter_size"};
    std::array<std::optional<double>, 4> values;
    for (const std::string_view pair : split(field, ", ")) {
      const size_t equals = std::min(pair.find('='), pair.size());
      const auto key = std::find(kKeys.begin(), kKeys.end(), pair.substr(0, equals));
      if (key == kKeys.end()) return bad_number(pair, "is not one of the four");
      auto& value = values[static_cast<size_t>(key - kKeys.begin())];
      if (value) return bad_number(pair, "stands there twice");
      value = sum_of(pair.substr(std::min(equals + 1, pair.size())));
      if (!value) return bad_number(pair, "is not a finite number from 0");
    }
    for (size_t i = 0; i < values.size(); ++i)
      if (!values[i]) return bad_number(kKeys[i], "is missing");
    layer.output_bytes = *values[2];
    layer.weight_bytes = *values[3];
    set_seconds(layer.node, *values[0] / 1e3, *values[1] / 1e3, layer.weight_bytes);
    layer.node.stash_to_input_gradient = per_sample(layer.output_bytes);
    return true;
  }

  bool bad_number(std::string_view pair, std::string_view what) {
    problem(text(shown(pair), " ", what),
            "write forward_compute_time, backward_compute_time, activation_size, parameter_size");
    return false;
  }

  ir::ImportedProfile without_inputs() {
    ir::ImportedProfile profile{.format = ir::ProfileFormat::kPipeDream, .time_unit_seconds = 1e-3};
    IdSet<LayerId> left_out(builder_.size());
    for (const LayerId id : builder_.layer_ids()) {
      const std::string& description = builder_[id].node.description.raw();
      if ((has_input_.contains(id) || !description.starts_with("Input")) &&
          (has_reader_.contains(id) || !description.starts_with("__getitem__")))
        continue;
      left_out.insert(id);
      profile.left_out.push_back(builder_[id].node.label);
    }
    profile.graph = builder_.build(left_out);
    return profile;
  }

  ProfileBuilder builder_;
  IdSet<LayerId> has_input_, has_reader_;
  std::map<std::string, LayerId, std::less<>> ids_;
  size_t line_ = 0;
  Diagnostics problems_;
};

}  // namespace

Result<ir::ImportedProfile> parse_pipedream_profile(std::string_view text) {
  if (static_cast<int64_t>(text.size()) > kMaxProfileBytes)
    return Diagnostic{
        .code = Code::kLimitExceeded, .message = "the profile is larger than 64 MiB", .hint = "use a coarser profile"};
  GP_TRY(ir::ImportedProfile profile, ProfileReader().read(text));
  if (profile.graph.nodes.empty())
    return Diagnostic{.code = Code::kBadProfile,
                      .message = "no layer of the profile computes anything",
                      .hint = "check that the file is a profile of PipeDream"};
  return profile;
}

Result<ir::ImportedProfile> read_pipedream_profile(const std::string& path) {
  GP_TRY(const std::string text, read_file(path, kMaxProfileBytes));
  return parse_pipedream_profile(text);
}

}  // namespace graphpipe::files
