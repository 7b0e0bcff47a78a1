#pragma once
// The whole generated folder as values: stage libraries, programs of devices, the build.

#include <string>
#include <vector>

#include "codegen/source_file.h"
#include "ir/graph.h"
#include "ir/plan.h"
#include "ir/plan_graph.h"
#include "ir/schedule.h"
#include "ir/stage_graph.h"
#include "support/result.h"
#include "wire/optimizers.h"

namespace graphpipe::codegen {

struct GenerateOptions {
  std::string tool_version;
  /// SHA-256 of the model and of the plan, hex: named in the first line of every file and checked by the programs.
  std::string model_digest, plan_digest;
  /// A name of wire/optimizers.h.
  std::string optimizer = wire::kDefaultOptimizer;
  /// Threads of a stage: they are part of the plan, because kernels give different bits with another number of threads.
  int threads = 1;
  /// Seed of dropout and of synthetic data, unless a run gives another.
  uint64_t seed = 0;
  /// The expected time of the plan's longest action, in milliseconds: the programs wait longer for a peer if that is
  /// more than usual. 0: unknown.
  int64_t longest_action_ms = 0;
  /// For each program of the schedule, the size of the memory block for the tensors of a step; empty: unknown.
  std::vector<Bytes> arenas = {};
  /// Uses gradients from LibTorch's autograd instead of our own: the oracle of the tests. Needs one stage.
  bool by_autograd = false;
  /// Also writes a profiling program: build/profile, which measures the operators (runtime/profiling/profile.h). Needs
  /// one stage.
  bool profile = false;
};

/// Writes:
///   CMakeLists.txt                    builds build/device (any rank, or all in one process); by their names, or
///                                     `devices`, build/device<rank>, each with the stages of one device
///   stages/stage<i>/...               forward, input_gradient, weight_gradient (files of at most 100 ops), table;
///                                     where no program divides the stage's backward, input_gradient computes both
///                                     gradients
///   blocks/...                        functions of layers that the model repeats, which stages call
///   programs/plan.{h,cpp}             what every device knows of the plan
///   programs/device<rank>.{h,cpp}     the device's actions; device<rank>_main.cpp, device_main.cpp
///   data.txt                          what the inputs and labels must be (wire/data_table.h)
///   products.txt                      the matrix products whose kernels `build` chooses (wire/product_table.h)
///   names.json                        values, nodes and parameters with their full origins
/// Ranks are the devices that have actions, in the order of the schedule. Weights and the manifest are the driver's.
/// Needs: `graph` priced as `plan`, cut as `stages`, ordered by `schedule`. Errors: those of cut_stages; by_autograd
/// with several stages (kUsage).
Result<std::vector<SourceFile>> generate(const ir::Graph& graph, const ir::PlanGraph& plan,
                                         const ir::StageGraph& stages, const ir::Schedule& schedule,
                                         const GenerateOptions& options);

}  // namespace graphpipe::codegen
