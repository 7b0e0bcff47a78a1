#include "driver/report/tolerances.h"

#include <algorithm>
#include <array>
#include <utility>

#include "driver/report/zero_gradients.h"

namespace graphpipe::driver {
namespace {

using ir::ValueId;

struct Format {
  ir::DType dtype;
  double loss, tensor;
  /// The part of the largest norm that a gradient of zero is measured against: two units of a 16-bit format, sixteen of
  /// float32, in parts of `tensor`.
  double floor_of_zero;
};
/// The most precise first. All other formats count as float32.
constexpr std::array<Format, 3> kFormats = {{{ir::DType::kFloat32, 1e-5, 1e-4, 16 * 0x1p-23 / 1e-4},
                                             {ir::DType::kFloat16, 2e-3, 1e-2, 2 * 0x1p-10 / 1e-2},
                                             {ir::DType::kBFloat16, 1e-2, 5e-2, 2 * 0x1p-7 / 5e-2}}};

size_t format_of(ir::DType dtype) {
  for (size_t format = 1; format < kFormats.size(); ++format)
    if (kFormats[format].dtype == dtype) return format;
  return 0;
}

/// For each value, the coarsest format whose rounding it may show: a place in kFormats.
class Roundings {
 public:
  explicit Roundings(const ir::Graph& graph) : graph_(graph), of_(graph.value_count(), 0) {
    IdMap<ValueId, bool> has_data(graph.value_count(), false);
    for (const ir::Input& input : graph.inputs()) has_data[input.value] = input.role != ir::InputRole::kLossScale;
    // Node ids are in topological order, and a gradient comes after the value that it belongs to.
    for (const ir::NodeId id : graph.node_ids()) {
      const ir::Node& node = graph.node(id);
      size_t format = 0;
      bool data = false;
      for (const ValueId input : node.inputs) {
        if (!input.valid()) continue;
        format = std::max(format, of_[input]);
        data = data || has_data[input];
      }
      for (const ValueId output : node.outputs) {
        if (!output.valid()) continue;
        has_data[output] = data;
        of_[output] = std::max(format, data ? format_of(graph.value(output).type.dtype) : 0);
      }
    }
  }

  size_t of(ValueId value) const { return of_[value]; }

  /// For a parameter, that of its gradient; for a buffer, the coarsest of all inputs of the nodes that take it.
  IdMap<ir::ParamId, size_t> of_params() const {
    IdMap<ir::ParamId, size_t> formats(graph_.param_count(), 0);
    for (const ir::GradientShare& share : graph_.gradient_shares())
      formats[share.param] = std::max({formats[share.param], of_[share.value],
                                       format_of(graph_.value(graph_.param(share.param).value).type.dtype)});
    const IdMap<ValueId, ir::ParamId> params = ir::params_of_values(graph_);
    for (const ir::NodeId id : graph_.node_ids())
      for (const ValueId input : graph_.node(id).inputs)
        if (input.valid() && params[input].valid() && graph_.param(params[input]).kind == ir::ParamKind::kBuffer)
          for (const ValueId read : graph_.node(id).inputs)
            if (read.valid()) formats[params[input]] = std::max(formats[params[input]], of_[read]);
    return formats;
  }

 private:
  const ir::Graph& graph_;
  IdMap<ValueId, size_t> of_;
};

}  // namespace

Tolerances tolerances_of(const ir::Graph& graph, std::optional<double> wanted, bool clips_norm) {
  const Roundings roundings(graph);
  const IdMap<ir::ParamId, size_t> of_params = roundings.of_params();
  size_t loosest = 0, of_loss = 0;
  for (const ir::ParamId id : graph.param_ids()) loosest = std::max(loosest, of_params[id]);
  const IdMap<ir::ParamId, bool> zero = gradients_of_zero(graph);
  Tolerances out{.tensors = {.usual = kFormats[0].tensor, .looser = {}, .floors = {}}};
  const auto loosen = [&](const ModelText& name, size_t format) {
    if (format > 0) out.tensors.looser[name.raw()] = kFormats[format].tensor;
  };
  for (const ir::ParamId id : graph.param_ids()) {
    const ir::Param& param = graph.param(id);
    const size_t format = clips_norm && param.trainable ? loosest : of_params[id];
    loosen(param.name, format);
    for (const ModelText& alias : param.aliases) loosen(alias, format);
    if (zero[id]) out.tensors.floors[param.name.raw()] = kFormats[of_params[id]].floor_of_zero;
  }
  for (const ir::Output& output : graph.outputs()) {
    const size_t format = roundings.of(output.value);
    if (output.role == ir::OutputRole::kLoss) of_loss = std::max(of_loss, format);
    else loosen(output.name, format);
    loosest = std::max(loosest, format);
  }
  out.loss = kFormats[of_loss].loss;
  out.computes_in = kFormats[loosest].dtype;
  if (!wanted) return out;
  out.loss *= *wanted / kFormats[of_loss].tensor;
  out.tensors = {.usual = *wanted, .looser = {}, .floors = out.tensors.floors};
  return out;
}

}  // namespace graphpipe::driver
