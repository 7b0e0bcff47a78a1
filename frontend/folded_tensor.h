#pragma once
// How a tensor that an exporter's optimiser has computed shows one parameter of the module.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/model.h"
#include "frontend/parameters.h"

namespace graphpipe::frontend {

/// What was done to the elements of the parameter, each by itself.
enum class FoldedValues : uint8_t { kSame, kNegated, kExponential, kNegatedExponential, kShifted, kSigmoid, kTanh };

struct FoldedTensor {
  /// The module's name of it.
  std::string parameter;
  /// A matrix, turned.
  bool is_turned = false;
  /// Axes may have been added, removed or joined: the order of the elements stayed.
  bool has_new_shape = false;
  /// Its elements stand there once for each part of the tensor's first axis: a token that is expanded for the samples.
  bool is_expanded = false;
  FoldedValues values = FoldedValues::kSame;
  /// What was added to them, where they are shifted: a number that neither name nor note says.
  double added = 0;
  /// Those of the parameter.
  std::vector<int64_t> dims;
  /// Its axes are not said: taken are those of the tensor that are not of size 1.
  bool has_assumed_dims = false;
};

/// Reads the name of the tensor and the optimiser's note on it: names of values say which calls made them. Nothing
/// where another call than the known ones, a buffer, or a second parameter had a part in it.
std::optional<FoldedTensor> folded_tensor(const Tensor& tensor, const std::string& note,
                                          const ExportSignature& signature);

/// Whether the elements of a tensor that is expanded say along which axis: its parts along the first are equal, and
/// those along others are not. Those that are all equal, as tokens begin, are one row where its readers take features
/// along the last axis (has_features()); else they may be one number.
bool is_expanded_first(const Tensor& tensor, bool has_features, std::string_view elements);

/// The elements of the parameter, of float32 or float64: those of which the calls make the given ones. Nothing where
/// none do, and near the ends of a sigmoid or tanh, where one of these is of many.
std::optional<std::string> elements_before(const FoldedTensor& folded, int onnx_type, const std::string& elements);

}  // namespace graphpipe::frontend
