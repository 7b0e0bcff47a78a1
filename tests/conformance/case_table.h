#pragma once
// What the generated half of the conformance run tells the running half: of each accepted model a function, and what
// its slots are.

#include <cstdint>
#include <span>

#include "runtime/program.h"

namespace graphpipe::conformance {

struct SlotRow {
  const char* name = nullptr;
  runtime::ElementType type = runtime::ElementType::kFloat32;
  /// Of an output that is one of the weights as it is, which the function leaves alone; else -1.
  int weight = -1;
};

/// The function finds its weights in the order of `weights` and its inputs in the first slots, and leaves its outputs
/// in the next ones.
struct Case {
  const char* name = nullptr;
  runtime::StageFunction run = nullptr;
  int64_t samples = 1;
  /// Draws random numbers, which are not those of ONNX.
  bool is_random = false;
  /// Its outputs have an axis of one sample in front, which ONNX's have not where they have no 1 there.
  bool one_sample = false;
  std::span<const char* const> weights;
  std::span<const SlotRow> inputs, outputs;
};

/// Defined by the generated files, by part.
std::span<const std::span<const Case>> all_cases();

}  // namespace graphpipe::conformance
