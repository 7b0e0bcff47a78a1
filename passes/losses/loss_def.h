#pragma once
// One loss, one entry: its name on the command line, what it takes, what it attaches and what it states.

#include <limits>
#include <span>
#include <string_view>

#include "passes/losses/loss_builder.h"

namespace graphpipe::passes {

/// A word after the names: "ignore=N", or "sum" if it has no value.
struct LossOption {
  std::string_view name;
  bool has_value = true;
  int64_t low = std::numeric_limits<int64_t>::min();
  int64_t high = std::numeric_limits<int64_t>::max();
};

struct LossDef {
  /// As in --loss NAME:OUTPUT.
  std::string_view name;
  bool takes_label = false;
  std::span<const LossOption> options = {};
  /// Activations that the loss applies itself: applied before it, they are probably a mistake.
  std::span<const std::string_view> own_activations = {};
  /// Appends the sum of `output`, a floating-point value. Errors (kBadLoss): shapes that do not fit.
  Result<AttachedLoss> (*attach)(LossBuilder& builder, ir::ValueId output) = nullptr;
};

}  // namespace graphpipe::passes
