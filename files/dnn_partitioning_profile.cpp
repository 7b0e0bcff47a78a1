#include "files/dnn_partitioning_profile.h"

#include <algorithm>
#include <map>

#include "files/numbered_layers.h"

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
  static std::string start(const JsonEvent& event, std::vector<Item>& items, size_t most) {
    if (event.path.size() == 1) return need_kind(event, JsonKind::kArray);
    if (items.size() == most) return text("more than ", most, " items");
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

/// Turns what was read into a layer graph.
class DnnBuilder {
 public:
  explicit DnnBuilder(DnnEvents&& events) : raw_(std::move(events)) {}

  Result<ir::LayerGraph> build() {
    ir::LayerGraph& graph = layers_.graph;
    graph.time_unit_seconds = kMillisecond;
    for (size_t i = 0; i < raw_.nodes.size() && layers_.may_go_on(); ++i) add_layer(i);
    sent_.assign(graph.layers.size(), false);
    for (size_t i = 0; i < raw_.edges.size() && layers_.may_go_on(); ++i) add_edge(i);
    const auto count = [](const std::optional<int64_t>& field) {
      return field ? std::optional(static_cast<int>(*field)) : std::nullopt;
    };
    graph.defaults = {.devices = count(raw_.accelerators), .cpus = count(raw_.cpus), .memory = raw_.memory};
    return layers_.finish();
  }

 private:
  void add_layer(size_t i) {
    const RawNode& raw = raw_.nodes[i];
    const std::string path = text("nodes[", i, "]");
    if (!raw.id) return layers_.problems.add(path, "has no id");
    const bool backward = raw.is_backward.value_or(false);
    const double seconds = kMillisecond * layers_.need(raw.accelerator_time, path, "fpgaLatency");
    layers_.add(*raw.id,
                {.label = raw.name,
                 .forward_seconds = backward ? 0 : seconds,
                 .backward_seconds = backward ? seconds : 0,
                 .cpu_seconds = kMillisecond * layers_.need(raw.cpu_time, path, "cpuLatency"),
                 .on_accelerator = raw.supported.value_or(true),
                 .memory_bytes = layers_.need(raw.size, path, "size"),
                 .is_backward = backward,
                 .color_class = raw.color_class,
                 .coarse_layer = raw.coarse_layer},
                path);
  }

  void add_edge(size_t i) {
    const DnnEdge& raw = raw_.edges[i];
    const std::string path = text("edges[", i, "]");
    const double seconds = kMillisecond * layers_.need(raw.cost, path, "cost");
    const ir::LayerId from = layers_.end_of(raw.from, path + ".sourceId"),
                      to = layers_.end_of(raw.to, path + ".destId");
    if (!from.valid() || !to.valid()) return;
    ir::Layer& source = layers_.graph.layers[from];
    if (sent_[from.index()] && source.transfer_seconds != seconds)
      layers_.problems.add(path + ".cost", "another edge of the same source has another cost");
    sent_[from.index()] = true;
    source.transfer_seconds = seconds;
    source.output_bytes = std::max(source.output_bytes, raw.size.value_or(0));
    layers_.graph.edges.push_back({.from = from, .to = to, .bytes = raw.size.value_or(0)});
  }

  DnnEvents raw_;
  NumberedLayers layers_{ir::LayerSource::kDnnPartitioning};
  std::vector<bool> sent_;
};

/// Places layers on the devices of a split.
class SplitReader {
 public:
  SplitReader(const ir::LayerGraph& graph, int first_cpu)
      : graph_(graph), first_cpu_(first_cpu), stage_of_(graph.layers.size(), -1) {
    for (const ir::LayerId id : graph.layer_ids()) layer_of_.emplace(graph.layers[id].id, id);
  }

  std::string take(const JsonEvent& event) {
    const auto& path = event.path;
    if (path.empty()) return need_kind(event, JsonKind::kObject);
    if (path[0] != "fpgas" && path[0] != "cpus") return "";
    if (path.size() == 1) return need_kind(event, JsonKind::kArray);
    if (path.size() == 2) {
      const bool on_cpu = path[0] == "cpus";
      int& count = on_cpu ? cpus_ : accelerators_;
      plan_.stages.push_back({.devices = {on_cpu ? first_cpu_ + count : count}, .on_cpu = on_cpu});
      ++count;
      return need_kind(event, JsonKind::kObject);
    }
    if (path[2] != "nodes" || path.size() > 4) return "";
    if (path.size() == 3) return need_kind(event, JsonKind::kArray);
    std::optional<int64_t> id;
    const std::string problem = read_id(event, id);
    if (!problem.empty()) return problem;
    const auto found = layer_of_.find(ModelText(std::to_string(*id)));
    if (found == layer_of_.end()) return "names no node";
    if (stage_of_[found->second] >= 0) return "is on two devices";
    stage_of_[found->second] = static_cast<int>(plan_.stages.size()) - 1;
    return "";
  }

  Result<ir::LayerPlan> finish() {
    std::map<int64_t, int> stage_of_class;
    for (const ir::LayerId id : graph_.layer_ids())
      if (const auto color = graph_.layers[id].color_class; color && stage_of_[id] >= 0)
        stage_of_class.emplace(*color, stage_of_[id]);
    for (const ir::LayerId id : graph_.layer_ids()) {
      int stage = stage_of_[id];
      if (const auto color = graph_.layers[id].color_class; stage < 0 && color && stage_of_class.contains(*color))
        stage = stage_of_class[*color];
      if (stage < 0)
        return Diagnostic{.code = Code::kBadPlan,
                          .origin = graph_.layers[id].id,
                          .message = "it is on no device of the split",
                          .hint = "list every node, or a node of its class"};
      plan_.stages[static_cast<size_t>(stage)].layers.push_back(id);
    }
    std::erase_if(plan_.stages, [](const ir::LayerStage& stage) { return stage.layers.empty(); });
    return std::move(plan_);
  }

 private:
  const ir::LayerGraph& graph_;
  int first_cpu_, cpus_ = 0, accelerators_ = 0;
  std::map<ModelText, ir::LayerId> layer_of_;
  IdMap<ir::LayerId, int> stage_of_;
  ir::LayerPlan plan_;
};

}  // namespace

Result<ir::LayerGraph> parse_dnn_partitioning_profile(std::string_view text_form) {
  DnnEvents events;
  GP_TRY_VOID(scan_json(text_form, kProfileLimits, [&](const JsonEvent& event) { return events.take(event); }));
  return DnnBuilder(std::move(events)).build();
}

Result<ir::LayerGraph> read_dnn_partitioning_profile(const std::string& path) {
  return read_layers(path, parse_dnn_partitioning_profile);
}

Result<ir::LayerPlan> parse_dnn_partitioning_split(std::string_view text_form, const ir::LayerGraph& graph,
                                                   int first_cpu) {
  SplitReader reader(graph, first_cpu);
  GP_TRY_VOID(scan_json(text_form, kProfileLimits, [&](const JsonEvent& event) { return reader.take(event); }));
  return reader.finish();
}

}  // namespace graphpipe::files
