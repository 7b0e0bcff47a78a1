#pragma once
// Parameters that an exporter's optimiser has left out of the file, by the code of the module: products with ones, and
// sums with zeros, that were computed from them beforehand (x + self.gain[i] * y) leave no tensor and no note.

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "frontend/model.h"
#include "frontend/parameters.h"

namespace graphpipe::frontend {

struct LeftOut {
  std::string parameter;
  /// What shows it, for a message.
  std::string evidence;
};

/// The first of these parameters that a line of its module's code names, though not for its size or type alone, where
/// the call of a node of that line takes a value that no node makes (results of operators that have several have other
/// names in the file and do not count). Nothing of lines that choose (`a if c else b`).
std::optional<LeftOut> left_out_in_code(const GraphBody& body, const ExportSignature& signature,
                                        const std::set<std::string>& parameters,
                                        const std::function<bool(const std::string&)>& is_made);

}  // namespace graphpipe::frontend
