#include "files/piper_profile.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "files/profile_builder.h"

namespace graphpipe::files {
namespace {

constexpr size_t kMaxVariants = 2;
constexpr size_t kMaxVariantsOfFile = 1'000'000, kMaxSyncsOfFile = 4'000'000;
constexpr int kMaxDegree = 10'000;
/// Average seconds of a layer above which times must be milliseconds.
constexpr double kSlowLayer = 0.1;

/// The name of the variant that keeps no activations; others are plain.
constexpr std::string_view kRecomputing = "activation recomp";

struct RawVariant {
  /// Its place in the file.
  size_t place = 0;
  ModelText name;
  std::optional<double> time, weights, per_item, fixed;
  std::vector<std::pair<int64_t, double>> sync_from, sync_to;
};

struct RawLayer {
  std::optional<int64_t> id;
  ModelText name;
  std::map<int, std::vector<RawVariant>> degrees;
};

struct PiperEdge {
  std::optional<int64_t> from, to;
  std::optional<double> bytes;
};

std::optional<int64_t> number_of(std::string_view word) {
  int64_t number = 0;
  return read_number(word, number) ? std::optional(number) : std::nullopt;
}

/// Takes the events of the scan; each function returns what is wrong.
class PiperEvents {
 public:
  std::optional<double> memory, bandwidth;
  std::optional<int64_t> devices, micro_batches;
  std::vector<RawLayer> layers;
  std::vector<PiperEdge> edges;

  std::string take(const JsonEvent& event) {
    const auto& path = event.path;
    if (path.empty()) return need_kind(event, JsonKind::kObject);
    if (path[0] == "nodes") return take_layer(event);
    if (path[0] == "edges") return take_edge(event);
    if (path.size() > 1) return "";
    if (path[0] == "maxMemoryPerDevice") return read_amount(event, memory);
    if (path[0] == "bandwidth") return read_amount(event, bandwidth);
    if (path[0] == "maxDevices") return read_integer(event, devices, 0, 1e6);
    if (path[0] == "mbsInBatch") return read_integer(event, micro_batches, 1, 1e9);
    return "";
  }

 private:
  std::string take_layer(const JsonEvent& event) {
    const auto& path = event.path;
    if (path.size() == 1) return need_kind(event, JsonKind::kArray);
    if (path.size() == 2) {
      if (layers.size() == kMaxLayersOfFile) return text("more than ", kMaxLayersOfFile, " nodes");
      layers.emplace_back();
      return need_kind(event, JsonKind::kObject);
    }
    RawLayer& layer = layers.back();
    if (path[2] == "TMPCs") return take_degree(event, layer);
    if (path.size() > 3) return "";
    if (path[2] == "id") return read_id(event, layer.id);
    if (path[2] == "name" && event.kind == JsonKind::kString) layer.name = ModelText(std::string(event.string));
    return "";
  }

  std::string take_degree(const JsonEvent& event, RawLayer& layer) {
    const auto& path = event.path;
    if (path.size() == 3) return need_kind(event, JsonKind::kObject);
    const auto degree = number_of(path[3]);
    if (!degree || *degree < 1 || *degree > kMaxDegree || std::to_string(*degree) != path[3])
      return text("must be a degree from 1 to ", kMaxDegree);
    std::vector<RawVariant>& variants = layer.degrees[static_cast<int>(*degree)];
    if (path.size() == 4) return need_kind(event, JsonKind::kArray);
    if (path.size() == 5) {
      if (variants.size() == kMaxVariants) return text("more than ", kMaxVariants, " variants");
      if (++variant_count_ > kMaxVariantsOfFile) return text("more than ", kMaxVariantsOfFile, " variants in all");
      variants.push_back({.place = variants.size()});
      return need_kind(event, JsonKind::kObject);
    }
    if (variants.empty()) return "must be in a list of variants";
    return take_variant(event, variants.back());
  }

  std::string take_variant(const JsonEvent& event, RawVariant& variant) {
    const auto& path = event.path;
    const std::string& field = path[5];
    if (field == "syncTimeFw" || field == "syncTimeBw") {
      if (path.size() == 6) return need_kind(event, JsonKind::kObject);
      if (path.size() > 7) return "";
      const auto neighbour = number_of(path[6]);
      if (!neighbour || std::to_string(*neighbour) != path[6]) return "must be the id of a neighbour";
      if (++sync_count_ > kMaxSyncsOfFile) return text("more than ", kMaxSyncsOfFile, " sizes in all");
      std::optional<double> bytes;
      const std::string problem = read_amount(event, bytes);
      if (problem.empty())
        (field == "syncTimeFw" ? variant.sync_from : variant.sync_to).emplace_back(*neighbour, *bytes);
      return problem;
    }
    if (path.size() > 6) return "";
    if (field == "timePerSample") return read_amount(event, variant.time);
    if (field == "parameterSize") return read_amount(event, variant.weights);
    if (field == "memoryUsageA") return read_amount(event, variant.per_item);
    if (field == "memoryUsageB") return read_amount(event, variant.fixed);
    if (field == "id" && event.kind == JsonKind::kString) variant.name = ModelText(std::string(event.string));
    return "";
  }

  std::string take_edge(const JsonEvent& event) {
    const auto& path = event.path;
    if (path.size() == 1) return need_kind(event, JsonKind::kArray);
    if (path.size() == 2) {
      if (edges.size() == kMaxEdgesOfFile) return text("more than ", kMaxEdgesOfFile, " edges");
      edges.emplace_back();
      return need_kind(event, JsonKind::kObject);
    }
    if (path.size() > 3) return "";
    if (path[2] == "sourceId") return read_id(event, edges.back().from);
    if (path[2] == "destId") return read_id(event, edges.back().to);
    if (path[2] == "communicationCost") return read_amount(event, edges.back().bytes);
    return "";
  }

  size_t variant_count_ = 0, sync_count_ = 0;
};

/// Turns what was read into a plan graph.
class PiperBuilder {
 public:
  explicit PiperBuilder(PiperEvents&& events) : raw_(std::move(events)) {}

  Result<ir::ImportedProfile> build() {
    check_variants();
    if (layers_.problems.empty()) set_units();
    // What is asked for everywhere (all plain, all recomputing) is asked by name: planners count on this order.
    for (RawLayer& layer : raw_.layers)
      for (auto& [degree, variants] : layer.degrees)
        // Not the one of ranges, which Clang 14 cannot instantiate with this library.
        std::stable_partition(variants.begin(), variants.end(),
                              [](const RawVariant& v) { return v.name.raw() != kRecomputing; });
    for (size_t i = 0; i < raw_.layers.size() && layers_.may_go_on(); ++i) add_layer(i);
    for (size_t i = 0; i < raw_.edges.size() && layers_.may_go_on(); ++i) add_edge(i);
    if (!layers_.problems.empty()) return layers_.problems.take();
    profile_.defaults = {.devices = raw_.devices ? std::optional(static_cast<int>(*raw_.devices)) : std::nullopt,
                         .memory = raw_.memory,
                         .bandwidth = raw_.bandwidth,
                         .micro_batches = raw_.micro_batches};
    neighbours_ = layers_.builder.neighbours();
    for (size_t i = 0; i < raw_.layers.size() && layers_.may_go_on(); ++i) add_boundaries(i);
    GP_TRY(profile_.graph, layers_.finish());
    return std::move(profile_);
  }

 private:
  void check_variants() {
    for (size_t i = 0; i < raw_.layers.size() && layers_.may_go_on(); ++i) {
      const RawLayer& raw = raw_.layers[i];
      const std::string path = text("nodes[", i, "]");
      if (!raw.id) {
        layers_.problems.add(path, "has no id");
        continue;
      }
      if (raw.degrees.empty() || raw.degrees.begin()->second.empty()) {
        layers_.problems.add(path, "has no TMPCs");
        continue;
      }
      for (const auto& [degree, variants] : raw.degrees) {
        if (variants.empty()) layers_.problems.add(text(path, ".TMPCs.", degree), "has no variant");
        for (const RawVariant& variant : variants) {
          layers_.need(variant.time, path, "timePerSample");
          layers_.need(variant.weights, path, "parameterSize");
          layers_.need(variant.per_item, path, "memoryUsageA");
          layers_.need(variant.fixed, path, "memoryUsageB");
        }
      }
    }
  }

  void set_units() {
    double total = 0;
    for (const RawLayer& raw : raw_.layers) total += *raw.degrees.begin()->second.front().time;
    if (total > kSlowLayer * static_cast<double>(raw_.layers.size())) profile_.time_unit_seconds = 0.001;
  }

  void add_layer(size_t i) {
    const RawLayer& raw = raw_.layers[i];
    if (!raw.id || raw.degrees.empty() || raw.degrees.begin()->second.empty()) return;
    ProfileBuilder::Layer layer;
    layer.node.description = raw.name;
    for (const auto& [degree, variants] : raw.degrees)
      for (const RawVariant& variant : variants) layer.node.alternatives.push_back(alternative_of(degree, variant));
    const ir::NodeAlternative& plain = layer.node.alternatives.front();
    layer.weight_bytes = plain.weight_bytes;
    layer.node.forward = plain.seconds.forward;
    layer.node.input_gradient = plain.seconds.input_gradient;
    layer.node.weight_gradient = plain.seconds.weight_gradient;
    layer.node.stash_to_input_gradient = per_sample(plain.kept_bytes);
    layer.node.buffer_bytes = whole_bytes(plain.fixed_bytes - 2 * plain.weight_bytes);
    layers_.add(*raw.id, std::move(layer), text("nodes[", i, "]"));
  }

  /// The file does not tell forward from backward: a third is forward.
  ir::NodeAlternative alternative_of(int degree, const RawVariant& raw) const {
    const double seconds = raw.time.value_or(0) * profile_.time_unit_seconds;
    ir::PlanNode priced;
    set_seconds(priced, seconds / 3, seconds * 2 / 3, raw.weights.value_or(0));
    return {.degree = degree,
            .name = raw.name,
            .seconds = priced,
            .weight_bytes = raw.weights.value_or(0),
            .kept_bytes = raw.per_item.value_or(0),
            .fixed_bytes = raw.fixed.value_or(0),
            .from = {},
            .to = {}};
  }

  void add_edge(size_t i) {
    const PiperEdge& raw = raw_.edges[i];
    const std::string path = text("edges[", i, "]");
    const double bytes = layers_.need(raw.bytes, path, "communicationCost");
    const LayerId from = layers_.end_of(raw.from, path + ".sourceId"), to = layers_.end_of(raw.to, path + ".destId");
    if (from.valid() && to.valid()) layers_.builder.add_edge(from, to, bytes);
  }

  /// Some files list the neighbours of both directions under either name: only those of the right side count.
  void add_boundaries(size_t i) {
    const LayerId id(i);
    auto way = layers_.builder[id].node.alternatives.begin();
    for (const auto& [degree, variants] : raw_.layers[i].degrees)
      for (size_t v = 0; v < variants.size(); ++v, ++way) {
        const std::string path = text("nodes[", i, "].TMPCs.", degree, "[", variants[v].place, "]");
        way->from = boundaries(variants[v].sync_from, neighbours_[id].from, path + ".syncTimeFw");
        way->to = boundaries(variants[v].sync_to, neighbours_[id].to, path + ".syncTimeBw");
      }
  }

  std::vector<ir::NodeAlternative::Boundary> boundaries(const std::vector<std::pair<int64_t, double>>& raw,
                                                        const std::vector<LayerId>& side, const std::string& path) {
    std::vector<ir::NodeAlternative::Boundary> out;
    for (const auto& [neighbour, bytes] : raw) {
      const auto found = layers_.find(neighbour);
      if (!found) layers_.problems.add(path, "names no node");
      else if (std::ranges::binary_search(side, *found))
        out.push_back({.neighbour = ir::PlanNodeId(found->index()), .bytes = bytes});
    }
    std::ranges::sort(out, {}, &ir::NodeAlternative::Boundary::neighbour);
    return out;
  }

  PiperEvents raw_;
  NumberedLayers layers_;
  IdMap<LayerId, ProfileBuilder::Neighbours> neighbours_;
  ir::ImportedProfile profile_{.format = ir::ProfileFormat::kPiper};
};

}  // namespace

Result<ir::ImportedProfile> parse_piper_profile(std::string_view text_form) {
  PiperEvents events;
  GP_TRY_VOID(scan_json(text_form, kProfileLimits, [&](const JsonEvent& event) { return events.take(event); }));
  return PiperBuilder(std::move(events)).build();
}

Result<ir::ImportedProfile> read_piper_profile(const std::string& path) {
  return read_profile_with(path, parse_piper_profile);
}

}  // namespace graphpipe::files
