#pragma once
// What is planned, as data: the command line and plan files are parsed into these once.

#include <string>

#include "ir/attributes.h"
#include "support/text.h"

namespace graphpipe::ir {

/// The loss that is asked for; its kinds are the entries of passes/losses/registry.cpp. Without a kind nothing is
/// trained.
struct LossSpec {
  std::string kind;
  /// The graph output that the loss reads.
  ModelText output;
  /// An input of the model, or a new one; empty where the kind takes none.
  ModelText label;
  /// Integers by name, as the kind's entry lists them: "ignore", "axis"; a word without a value is 1.
  Attributes options;
  bool operator==(const LossSpec&) const = default;
};

}  // namespace graphpipe::ir
