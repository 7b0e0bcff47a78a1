#pragma once
// The view that planners of other projects have of a plan graph: layers with plain numbers for one fixed unit of work,
// a mini-batch or a micro-batch. Layers keep the order of the profile's file, which need not be topological.
// cost_models/layer_view.h makes it from a plan graph; nothing outside of partitioner/ knows it.

#include <optional>
#include <vector>

#include "support/id.h"
#include "support/result.h"
#include "support/text.h"

namespace graphpipe::partitioner {

using LayerId = Id<struct LayerTag>;

/// Where the numbers came from: which of the fields below are filled. kModel: priced at one micro-batch size.
enum class LayerSource : uint8_t { kPipeDream, kPiper, kDnnPartitioning, kModel };

/// Extra bytes that the tensor-parallel collective of a layer moves if the edge to `neighbour` is cut.
struct LayerSync {
  LayerId neighbour;
  double bytes = 0;
  bool operator==(const LayerSync&) const = default;
};

/// One way to execute a layer at some tensor-parallel degree (Piper): plain, with recomputation, ...
struct LayerVariant {
  ModelText name;
  /// Forward and backward of one micro-batch on one of the devices, seconds.
  double seconds = 0;
  /// Bytes per device that replicas have to synchronise.
  double weight_bytes = 0;
  /// Bytes per device for each micro-batch in flight, and bytes whatever is in flight.
  double memory_per_item = 0, memory_fixed = 0;
  /// By predecessor and by successor, ascending, each once; absent: none.
  std::vector<LayerSync> sync_from, sync_to;
  bool operator==(const LayerVariant&) const = default;
};

struct LayerDegree {
  int degree = 1;
  /// At least one.
  std::vector<LayerVariant> variants;
  bool operator==(const LayerDegree&) const = default;
};

struct Layer {
  /// As in the file: "node17", "3".
  ModelText id;
  /// The description or name in the file; informal.
  ModelText label;
  /// One unit of work on one accelerator, seconds. Where `degrees` is filled: of the first variant at the smallest
  /// degree, all of it as forward time (the files do not say how it divides).
  double forward_seconds = 0, backward_seconds = 0;
  double seconds() const { return forward_seconds + backward_seconds; }
  /// Bytes of the output of one unit of work, and of the weights.
  double output_bytes = 0, weight_bytes = 0;
  /// Piper: ascending by degree, each once. A layer cannot be in a stage of a degree that it lacks.
  std::vector<LayerDegree> degrees;
  /// dnn-partitioning: seconds on a CPU, whether an accelerator can run it, memory there, and the seconds that moving
  /// its output between an accelerator and host memory takes.
  double cpu_seconds = 0;
  bool on_accelerator = true;
  double memory_bytes = 0, transfer_seconds = 0;
  /// Backward half of a training graph.
  bool is_backward = false;
  /// Layers of one class share a device.
  std::optional<int64_t> color_class;
  bool operator==(const Layer&) const = default;
};

/// A tensor on its way: each once per pair of layers. Order of the file.
struct LayerEdge {
  LayerId from, to;
  /// Bytes of one unit of work. Where the file gives none per edge: the producer's output_bytes.
  double bytes = 0;
  bool operator==(const LayerEdge&) const = default;
};

struct LayerGraph {
  LayerSource source = LayerSource::kPipeDream;
  IdMap<LayerId, Layer> layers;
  std::vector<LayerEdge> edges;
  /// Seconds of one unit of the file's times, 1 or 0.001: planners that mix units like their originals need it.
  double time_unit_seconds = 1;

  IdRange<LayerId> layer_ids() const { return ids<LayerId>(layers.size()); }
  bool operator==(const LayerGraph&) const = default;
};

/// Neighbours of each layer in the order of the edges; and a topological order, smallest id first among the free.
struct LayerAdjacency {
  IdMap<LayerId, std::vector<LayerId>> predecessors, successors;
  std::vector<LayerId> order;
};
/// Needs: no cycle.
LayerAdjacency adjacency_of(const LayerGraph& graph);

}  // namespace graphpipe::partitioner
