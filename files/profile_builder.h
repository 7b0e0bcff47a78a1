#pragma once
// What the readers of other projects' profiles share: layers and edges in the order of the file, checked and turned
// into a plan graph.

#include <map>
#include <optional>
#include <string>

#include "files/json_field_reader.h"
#include "files/proto_json.h"
#include "files/text_file.h"
#include "ir/imported_profile.h"
#include "support/id.h"

namespace graphpipe::files {

/// A layer by its place in the file.
using LayerId = Id<struct FileLayerTag>;

class ProfileBuilder {
 public:
  /// Neighbours in alternatives are places in the file; they are renumbered with the nodes.
  struct Layer {
    ir::PlanNode node;
    double weight_bytes = 0;
    /// Bytes that it puts out even where nothing reads them.
    double output_bytes = 0;
    /// Layers of one class share a stage.
    std::optional<int64_t> color_class;
  };

  LayerId add(Layer layer);
  void add_edge(LayerId from, LayerId to, double bytes) { edges_.push_back({from, to, bytes}); }
  size_t size() const { return layers_.size(); }
  IdRange<LayerId> layer_ids() const { return ids<LayerId>(layers_.size()); }
  Layer& operator[](LayerId id) { return layers_[id]; }

  /// Readers and writers of a layer's tensors, ascending.
  struct Neighbours {
    std::vector<LayerId> from, to;
  };
  IdMap<LayerId, Neighbours> neighbours() const;

  /// Checks: at least one layer and at most a million, ids unique, edges between layers and each pair once, no cycle,
  /// numbers from 0 to 1e18, degrees with alternatives whose boundaries name neighbours. Reports the problems by layer
  /// id, at most 20 (kBadProfile).
  Status check() const;
  /// The graph without some layers. Needs: check() found nothing.
  ir::PlanGraph build(const IdSet<LayerId>& left_out = {}) const;

 private:
  struct Edge {
    LayerId from, to;
    double bytes = 0;
  };
  friend class LayerChecker;
  friend class GraphWriter;

  IdMap<LayerId, Layer> layers_;
  std::vector<Edge> edges_;
};

/// Seconds or bytes of n samples: n times those of one.
inline ir::SampleFunction per_sample(double value) { return ir::SampleFunction::polynomial(0, value); }
/// Rounded, from 0 to 1e15.
Bytes whole_bytes(double bytes);
/// The price of a layer whose backward is known as a whole: half of a backward with weights is their gradient.
void set_seconds(ir::PlanNode& node, double forward, double backward, double weight_bytes);

/// Layers that go by the numbers of a file in JSON, and the problems found on the way.
class NumberedLayers {
 public:
  ProfileBuilder builder;
  FieldProblems problems{Code::kBadProfile, "correct the file"};
  bool may_go_on() const { return !problems.full(); }

  /// The field, or 0 and a problem where the file does not have it.
  double need(const std::optional<double>& field, const std::string& path, std::string_view name) {
    if (!field) problems.add(path, "has no ", name);
    return field.value_or(0);
  }

  void add(int64_t number, ProfileBuilder::Layer layer, const std::string& path) {
    layer.node.label = ModelText(std::to_string(number));
    if (!layer_of_.emplace(number, builder.add(std::move(layer))).second)
      problems.add(path + ".id", "another node has this id");
  }

  std::optional<LayerId> find(int64_t number) const {
    const auto found = layer_of_.find(number);
    return found == layer_of_.end() ? std::nullopt : std::optional(found->second);
  }

  /// The layer at one end of an edge; invalid, and a problem, where there is none.
  LayerId end_of(const std::optional<int64_t>& number, const std::string& path) {
    const auto found = number ? find(*number) : std::nullopt;
    if (!found) problems.add(path, "names no node");
    return found.value_or(LayerId());
  }

  Result<ir::PlanGraph> finish() {
    if (!problems.empty()) return problems.take();
    GP_TRY_VOID(builder.check());
    return builder.build();
  }

 private:
  std::map<int64_t, LayerId> layer_of_;
};

/// Reads and parses a file; problems name it.
template <typename Parse>
Result<ir::ImportedProfile> read_profile_with(const std::string& path, Parse parse) {
  GP_TRY(const std::string text, read_file(path, kProfileLimits.max_bytes));
  Result<ir::ImportedProfile> profile = parse(text);
  if (!profile.ok()) return with_origin(profile.problems(), path);
  return profile;
}

}  // namespace graphpipe::files
