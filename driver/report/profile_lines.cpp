#include "driver/report/profile_lines.h"

#include <array>
#include <cmath>
#include <map>
#include <span>
#include <sstream>

#include "cost/signature.h"

namespace graphpipe::driver {
namespace {

// The mean of what was added.
struct Mean {
  double sum = 0;
  int count = 0;
  std::optional<Seconds> value() const { return count > 0 ? std::optional(Seconds(sum / count)) : std::nullopt; }
};

class LineReader {
 public:
  explicit LineReader(const ir::Graph& graph) : graph_(graph) {}

  bool read(const std::string& line) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "op") return read_operator(words);
    if (kind == "link") return read_link(words);
    return kind == "runtime" && read_runtime(words);
  }

  ir::Profile finish() {
    for (const ir::NodeId id : graph_.node_ids()) {
      if (graph_.node(id).phase != ir::Phase::kForward) continue;
      // There are no lines for a node that no function runs: it costs nothing.
      auto& sizes = means_[cost::op_signature(graph_, graph_.node(id))];
      if (sizes.empty()) sizes[1][0] = {.sum = 0, .count = 1};
    }
    for (const auto& [signature, sizes] : means_)
      for (const auto& [samples, mean] : sizes)
        profile_.operators.push_back({.signature = ModelText(signature),
                                      .samples = Samples(samples),
                                      .forward = mean[0].value(),
                                      .input_gradient = mean[1].value(),
                                      .weight_gradient = mean[2].value()});
    return std::move(profile_);
  }

 private:
  // "-" stands for a pass that does not exist.
  static bool read_seconds(std::istringstream& words, std::optional<double>& seconds) {
    std::string word;
    if (!(words >> word)) return false;
    if (word == "-") return true;
    std::istringstream number(word);
    double value = 0;
    if (!(number >> value) || !(value >= 0) || !std::isfinite(value)) return false;
    seconds = value;
    return true;
  }

  static bool read_numbers(std::istringstream& words, std::span<double> numbers) {
    for (double& number : numbers) {
      std::optional<double> value;
      if (!read_seconds(words, value) || !value) return false;
      number = *value;
    }
    return true;
  }

  bool read_operator(std::istringstream& words) {
    size_t node = 0;
    int64_t samples = 0;
    if (!(words >> node >> samples) || node >= graph_.node_count() || samples < 1) return false;
    std::array<std::optional<double>, 3> seconds;
    for (std::optional<double>& of_pass : seconds)
      if (!read_seconds(words, of_pass)) return false;
    auto& means = means_[cost::op_signature(graph_, graph_.node(ir::NodeId(node)))][samples];
    for (size_t pass = 0; pass < 3; ++pass) {
      if (!seconds[pass]) continue;
      means[pass].sum += *seconds[pass];
      ++means[pass].count;
    }
    return true;
  }

  bool read_link(std::istringstream& words) {
    std::array<double, 2> numbers{};
    if (!read_numbers(words, numbers)) return false;
    constexpr double kMin = 1e-15;  // seconds per byte
    profile_.links.push_back(
        {.level = 0, .latency = Seconds(numbers[0]), .bandwidth = BytesPerSecond(1 / std::max(numbers[1], kMin))});
    return true;
  }

  bool read_runtime(std::istringstream& words) {
    std::array<double, 7> numbers{};
    if (!read_numbers(words, numbers)) return false;
    profile_.runtime = {.step = Seconds(numbers[0]),
                        .action = Seconds(numbers[1]),
                        .message = Seconds(numbers[2]),
                        .message_byte = numbers[3],
                        .update_tensor = Seconds(numbers[4]),
                        .update_byte = numbers[5],
                        .add_byte = numbers[6]};
    return true;
  }

  const ir::Graph& graph_;
  std::map<std::string, std::map<int64_t, std::array<Mean, 3>>> means_;
  ir::Profile profile_;
};

}  // namespace

Result<ir::Profile> profile_of_lines(std::string_view report, const ir::Graph& graph) {
  LineReader reader(graph);
  std::istringstream lines{std::string(report)};
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    if (reader.read(line)) continue;
    return Diagnostic{.code = Code::kPeerFailed,
                      .message = text("the profiling program printed ", quoted(ModelText(line.substr(0, 200)))),
                      .hint = "the runtime may be of another version; build it again"};
  }
  if (count == 0) {
    return Diagnostic{.code = Code::kPeerFailed,
                      .message = "the profiling program measured nothing",
                      .hint = "run it again; its messages are on stderr"};
  }
  return reader.finish();
}

}  // namespace graphpipe::driver
