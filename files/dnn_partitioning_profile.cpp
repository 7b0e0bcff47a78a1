#include "files/dnn_partitioning_profile.h"

#include <algorithm>
#include <map>

#include "files/profile_builder.h"

namespace graphpipe::files {
namespace {

constexpr double kMillisecond = 0.001;

struct RawNode {
  std::optional<int64_t> id, color_class, coarse_layer;
  ModelText name;
  std::optional<bool> supported, is_backward;
  std::optional<double> accelerator_time, cpu_time, size;
};

struct DnnEdge {
  std::optional<int64_t> from, to;
  std::optional<double> cost, size;
};

/// Takes the events of the scan; each function returns what is wrong.
class DnnEvents {
 public:
  std::optional<double> memory;
  std::optional<int64_t> accelerators, cpus;
  std::vector<RawNode> nodes;
  std::vector<DnnEdge> edges;

  std::string take(const JsonEvent& event) {
    const auto& path = event.path;
    if (path.empty()) return need_kind(event, JsonKind::kObject);
    if (path[0] == "nodes") return take_node(event);
    if (path[0] == "edges") return take_edge(event);
    if (path.size() > 1) return "";
    if (path[0] == "maxSizePerFPGA") return read_amount(event, memory);
    if (path[0] == "maxFPGAs") return read_integer(event, accelerators, 0, 1e6);
    if (path[0] == "maxCPUs") return read_integer(event, cpus, 0, 1e6);
    return "";
  }

 private:
  template <typename Item>
  static std::string start(const JsonEvent& event, std::vector<Item>& items, size_t max_items) {
    if (event.path.size() == 1) return need_kind(event, JsonKind::kArray);
    if (items.size() == max_items) return text("more than ", max_items, " items");
    items.emplace_back();
    return need_kind(event, JsonKind::kObject);
  }

  std::string take_node(const JsonEvent& event) {
    if (event.path.size() <= 2) return start(event, nodes, kMaxLayersOfFile);
    if (event.path.size() > 3) return "";
    RawNode& node = nodes.back();
    const std::string& field = event.path[2];
    if (field == "id") return read_id(event, node.id);
    if (field == "supportedOnFpga") return read_flag(event, node.supported);
    if (field == "isBackwardNode") return read_flag(event, node.is_backward);
    if (field == "fpgaLatency") return read_amount(event, node.accelerator_time);
    if (field == "cpuLatency") return read_amount(event, node.cpu_time);
    if (field == "size") return read_amount(event, node.size);
    if (event.kind == JsonKind::kNull) return "";
    if (field == "colorClass") return read_id(event, node.color_class);
    if (field == "layerId" && event.kind == JsonKind::kInteger) return read_id(event, node.coarse_layer);
    if (field == "name" && event.kind == JsonKind::kString) node.name = ModelText(std::string(event.string));
    return "";
  }

  std::string take_edge(const JsonEvent& event) {
    if (event.path.size() <= 2) return start(event, edges, kMaxEdgesOfFile);
    if (event.path.size() > 3) return "";
    DnnEdge& edge = edges.back();
    const std::string& field = event.path[2];
    if (field == "sourceId") return read_id(event, edge.from);
    if (field == "destId") return read_id(event, edge.to);
    if (field == "cost") return read_amount(event, edge.cost);
    if (field == "size") return read_amount(event, edge.size);
    return "";
  }
};

/// Turns what was read into a plan graph.
class DnnBuilder {
 public:
  explicit DnnBuilder(DnnEvents&& events) : raw_(std::move(events)) {}

  Result<ir::ImportedProfile> build() {
    for (size_t i = 0; i < raw_.nodes.size() && layers_.may_go_on(); ++i) add_layer(i);
    sent_.assign(layers_.builder.size(), false);
    for (size_t i = 0; i < raw_.edges.size() && layers_.may_go_on(); ++i) add_edge(i);
    const auto count = [](const std::optional<int64_t>& field) {
      return field ? std::optional(static_cast<int>(*field)) : std::nullopt;
    };
    ir::ImportedProfile profile{.format = ir::ProfileFormat::kDnnPartitioning, .time_unit_seconds = kMillisecond};
    profile.defaults = {.devices = count(raw_.accelerators), .cpus = count(raw_.cpus), .memory = raw_.memory};
    GP_TRY(profile.graph, layers_.finish());
    return profile;
  }

 private:
  /// All seconds of a layer are those of its half.
  static ir::PassSeconds seconds_of(double seconds, bool is_backward) {
    return {.forward = per_sample(is_backward ? 0 : seconds),
            .input_gradient = per_sample(is_backward ? seconds : 0),
            .weight_gradient = {}};
  }

  void add_layer(size_t i) {
    const RawNode& raw = raw_.nodes[i];
    const std::string path = text("nodes[", i, "]");
    if (!raw.id) return layers_.problems.add(path, "has no id");
    ProfileBuilder::Layer layer{.color_class = raw.color_class};
    ir::PlanNode& node = layer.node;
    node.description = raw.name;
    node.is_backward = raw.is_backward.value_or(false);
    const auto on = [&](const std::optional<double>& time, std::string_view name) {
      return seconds_of(kMillisecond * layers_.need(time, path, name), node.is_backward);
    };
    node.by_kind = {on(raw.accelerator_time, "fpgaLatency"), on(raw.cpu_time, "cpuLatency")};
    node.forward = node.by_kind.front().forward;
    node.input_gradient = node.by_kind.front().input_gradient;
    if (!raw.supported.value_or(true)) node.refused_kinds = {0};
    node.buffer_bytes = whole_bytes(layers_.need(raw.size, path, "size"));
    layers_.add(*raw.id, std::move(layer), path);
  }

  void add_edge(size_t i) {
    const DnnEdge& raw = raw_.edges[i];
    const std::string path = text("edges[", i, "]");
    const ir::SampleFunction seconds = per_sample(kMillisecond * layers_.need(raw.cost, path, "cost"));
    const LayerId from = layers_.end_of(raw.from, path + ".sourceId"), to = layers_.end_of(raw.to, path + ".destId");
    if (!from.valid() || !to.valid()) return;
    ir::PlanNode& source = layers_.builder[from].node;
    if (sent_[from.index()] && source.host_transfer != seconds)
      layers_.problems.add(path + ".cost", "another edge of the same source has another cost");
    sent_[from.index()] = true;
    source.host_transfer = seconds;
    layers_.builder.add_edge(from, to, raw.size.value_or(0));
  }

  DnnEvents raw_;
  NumberedLayers layers_;
  std::vector<bool> sent_;
};

/// Places layers on the devices of a split.
class SplitReader {
 public:
  SplitReader(const ir::PlanGraph& graph, int first_cpu) : graph_(graph), first_cpu_(first_cpu) {
    plan_.stage_of.resize(graph.nodes.size());
    for (const ir::PlanNodeId id : graph.node_ids()) node_of_.emplace(graph.nodes[id].label, id);
  }

  std::string take(const JsonEvent& event) {
    const auto& path = event.path;
    if (path.empty()) return need_kind(event, JsonKind::kObject);
    if (path[0] != "fpgas" && path[0] != "cpus") return "";
    if (path.size() == 1) return need_kind(event, JsonKind::kArray);
    if (path.size() == 2) {
      const bool on_cpu = path[0] == "cpus";
      int& count = on_cpu ? cpus_ : accelerators_;
      plan_.choice.push_back({.devices = {ir::DeviceId(static_cast<size_t>((on_cpu ? first_cpu_ : 0) + count))}});
      ++count;
      return need_kind(event, JsonKind::kObject);
    }
    if (path[2] != "nodes" || path.size() > 4) return "";
    if (path.size() == 3) return need_kind(event, JsonKind::kArray);
    std::optional<int64_t> id;
    const std::string problem = read_id(event, id);
    if (!problem.empty()) return problem;
    const auto found = node_of_.find(ModelText(std::to_string(*id)));
    if (found == node_of_.end()) return "names no node";
    if (plan_.stage_of[found->second].valid()) return "is on two devices";
    plan_.stage_of[found->second] = ir::StageId(plan_.choice.size() - 1);
    return "";
  }

  Result<ir::Assignment> finish() {
    for (const auto& members : graph_.colocated) {
      ir::StageId listed;
      for (const ir::PlanNodeId id : members)
        if (!listed.valid()) listed = plan_.stage_of[id];
      for (const ir::PlanNodeId id : members)
        if (!plan_.stage_of[id].valid()) plan_.stage_of[id] = listed;
    }
    for (const ir::PlanNodeId id : graph_.file_order.nodes)
      if (!plan_.stage_of[id].valid())
        return Diagnostic{.code = Code::kBadPlan,
                          .origin = graph_.nodes[id].label,
                          .message = "it is on no device of the split",
                          .hint = "list every node, or a node of its class"};
    drop_empty_stages();
    return std::move(plan_);
  }

 private:
  void drop_empty_stages() {
    IdMap<ir::StageId, ir::StageId> renamed(plan_.choice.size());
    IdMap<ir::StageId, ir::StageChoice> kept;
    for (const ir::StageId stage : ids<ir::StageId>(plan_.choice.size()))
      if (std::ranges::find(plan_.stage_of, stage) != plan_.stage_of.end())
        renamed[stage] = kept.push_back(plan_.choice[stage]);
    plan_.choice = std::move(kept);
    for (ir::StageId& stage : plan_.stage_of) stage = renamed[stage];
  }

  const ir::PlanGraph& graph_;
  int first_cpu_, cpus_ = 0, accelerators_ = 0;
  std::map<ModelText, ir::PlanNodeId> node_of_;
  ir::Assignment plan_;
};

}  // namespace

Result<ir::ImportedProfile> parse_dnn_partitioning_profile(std::string_view text_form) {
  DnnEvents events;
  GP_TRY_VOID(scan_json(text_form, kProfileLimits, [&](const JsonEvent& event) { return events.take(event); }));
  return DnnBuilder(std::move(events)).build();
}

Result<ir::ImportedProfile> read_dnn_partitioning_profile(const std::string& path) {
  return read_profile_with(path, parse_dnn_partitioning_profile);
}

Result<ir::Assignment> parse_dnn_partitioning_split(std::string_view text_form, const ir::PlanGraph& graph,
                                                    int first_cpu) {
  SplitReader reader(graph, first_cpu);
  GP_TRY_VOID(scan_json(text_form, kProfileLimits, [&](const JsonEvent& event) { return reader.take(event); }));
  return reader.finish();
}

}  // namespace graphpipe::files
