#include "files/stage_dag.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "files/strict_json.h"
#include "files/text_file.h"
#include "support/text.h"

namespace graphpipe::files {
namespace {

using nlohmann::json;

constexpr JsonLimits kDagLimits = {.max_bytes = int64_t{16} << 20, .deepest = 16};
constexpr size_t kMaxStages = 10000;
constexpr int64_t kMaxDagDevices = 20000;
constexpr int64_t kMaxSamples = (int64_t{1} << 31) - 1;
/// The largest cost: a million actions of it fit the simulator's clock.
constexpr double kLargestCost = 1e6;

class Reader {
 public:
  explicit Reader(const json& object) : object_(object) {}

  Result<StageDag> run() {
    read_predecessors();
    if (problems_.empty()) {
      dag_.micro_batch_size = integers("micro_batch_size", 1, kMaxSamples);
      const std::vector<int64_t> k = integers("k", 1, 1 << 20);
      dag_.k.assign(k.begin(), k.end());
      read_replicas();
      read_batch();
      read_costs();
      if (const auto latency = object_.find("latency"); latency != object_.end())
        dag_.latency = cost(*latency, "latency");
    }
    if (!problems_.empty()) return problems_;
    return std::move(dag_);
  }

 private:
  size_t stages() const { return dag_.predecessors.size(); }

  void add(std::string message) {
    if (problems_.size() < 20)
      problems_.push_back({.code = Code::kMalformedFile,
                           .message = std::move(message),
                           .hint = "docs/files.md says what a stage graph file holds"});
  }

  void read_predecessors() {
    const auto list = object_.find("predecessors");
    if (list == object_.end() || !list->is_array() || list->empty() || list->size() > kMaxStages)
      return add(text("predecessors: must be a list with 1 to ", kMaxStages, " entries, one per stage"));
    std::vector<size_t> named_by(list->size(), list->size());
    for (size_t stage = 0; stage < list->size(); ++stage) {
      std::vector<int>& before = dag_.predecessors.emplace_back();
      const json& entry = (*list)[stage];
      if (!entry.is_array()) return add(text("predecessors[", stage, "]: must be a list of stage numbers"));
      for (const json& number : entry) {
        const int64_t from = number.is_number_integer() ? number.get<int64_t>() : -1;
        if (from < 0 || from >= static_cast<int64_t>(stage))
          return add(text("predecessors[", stage, "]: must name stages below ", stage));
        if (std::exchange(named_by[static_cast<size_t>(from)], stage) == stage)
          return add(text("predecessors[", stage, "]: names stage ", from, " twice"));
        before.push_back(static_cast<int>(from));
      }
    }
  }

  /// A list with one integer per stage, or one for all; ones where it is missing.
  std::vector<int64_t> integers(const char* name, int64_t low, int64_t high) {
    std::vector<int64_t> numbers(stages(), 1);
    const auto member = object_.find(name);
    if (member == object_.end()) return numbers;
    if (member->is_array() && member->size() != stages()) add(text(name, ": must have one entry per stage"));
    for (size_t stage = 0; stage < stages(); ++stage) {
      const json* number = member->is_array() ? (stage < member->size() ? &(*member)[stage] : nullptr) : &*member;
      if (number == nullptr) break;
      numbers[stage] = number->is_number_integer() ? number->get<int64_t>() : low - 1;
      if (numbers[stage] < low || numbers[stage] > high)
        return add(text(name, ": must hold integers from ", low, " to ", high)), numbers;
    }
    return numbers;
  }

  void read_replicas() {
    const std::vector<int64_t> replicas = integers("replicas", 1, kMaxDagDevices);
    dag_.replicas.assign(replicas.begin(), replicas.end());
    if (dag_.devices() > kMaxDagDevices) add(text("replicas: need more than ", kMaxDagDevices, " devices"));
  }

  void read_batch() {
    const auto batch = object_.find("batch"), count = object_.find("micro_batches");
    const auto whole = [&](const json& number, const char* name) -> int64_t {
      const int64_t value = number.is_number_integer() ? number.get<int64_t>() : 0;
      if (value < 1 || value > kMaxSamples) add(text(name, ": must be an integer from 1 to ", kMaxSamples));
      return value;
    };
    if (batch != object_.end()) {
      dag_.batch = whole(*batch, "batch");
    } else if (count != object_.end()) {
      for (const int64_t size : dag_.micro_batch_size)
        if (size != dag_.micro_batch_size.front())
          return add("micro_batches: says nothing where stages have different sizes: give batch, in samples");
      dag_.batch = whole(*count, "micro_batches");
      if (dag_.batch > kMaxSamples / dag_.micro_batch_size.front()) add("micro_batches: makes too many samples");
      else dag_.batch *= dag_.micro_batch_size.front();
    }
    for (const int64_t size : dag_.micro_batch_size)
      if (dag_.batch > 0 && size > dag_.batch) return add("micro_batch_size: is larger than the batch");
  }

  void read_costs() {
    const auto per_sample = object_.find("cost_per_sample");
    dag_.per_sample = per_sample != object_.end();
    if (dag_.per_sample && !per_sample->is_object()) return add("cost_per_sample: must be an object");
    const json& costs = dag_.per_sample ? *per_sample : object_;
    dag_.forward = cost_list(costs, "forward");
    dag_.backward = cost_list(costs, "backward");
  }

  double cost(const json& number, const char* name) {
    const double value = number.is_number() ? number.get<double>() : -1;
    if (!(value >= 0 && value <= kLargestCost)) add(text(name, ": must hold numbers from 0 to ", kLargestCost));
    return value;
  }

  std::vector<double> cost_list(const json& object, const char* name) {
    const auto member = object.find(name);
    if (member == object.end()) return {};
    std::vector<double> list(stages(), 0);
    if (member->is_array() && member->size() != stages())
      return add(text(name, ": must have one entry per stage")), list;
    for (size_t stage = 0; stage < stages() && problems_.empty(); ++stage)
      list[stage] = cost(member->is_array() ? (*member)[stage] : *member, name);
    return list;
  }

  const json& object_;
  StageDag dag_;
  Diagnostics problems_;
};

}  // namespace

int64_t StageDag::devices() const { return std::accumulate(replicas.begin(), replicas.end(), int64_t{0}); }

Result<StageDag> parse_stage_dag(std::string_view source) {
  GP_TRY_VOID(scan_json(source, kDagLimits));
  const json object = json::parse(source, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object())
    return Diagnostic{.code = Code::kMalformedFile,
                      .message = "a stage graph is one JSON object",
                      .hint = "take one case out of a collection"};
  return Reader(object).run();
}

Result<StageDag> read_stage_dag(const std::string& path) {
  GP_TRY(const std::string text, read_file(path, kDagLimits.max_bytes));
  Result<StageDag> dag = parse_stage_dag(text);
  if (dag.ok()) return dag;
  Diagnostics problems = dag.problems();
  for (Diagnostic& problem : problems) problem.origin = ModelText(path);
  return problems;
}

}  // namespace graphpipe::files
