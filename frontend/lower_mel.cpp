// MelWeightMatrix: a table of overlapping triangles, from constant parameters
// (https://onnx.ai/onnx/operators/onnx__MelWeightMatrix.html).

#include <cmath>

#include "frontend/node_context.h"

namespace graphpipe::frontend {
namespace {

double mel_of(double hertz) { return 2595 * std::log10(1 + hertz / 700); }
double hertz_of(double mel) { return 700 * (std::pow(10, mel / 2595) - 1); }

struct MelForm {
  int64_t bins = 0, length = 0, rate = 0;
  double low = 0, high = 0;
  int64_t rows() const { return length / 2 + 1; }
};

Result<MelForm> mel_form(NodeContext& context) {
  MelForm form;
  double* const numbers[] = {&form.low, &form.high};
  int64_t* const counts[] = {&form.bins, &form.length, &form.rate};
  for (size_t i = 0; i < 5; ++i) {
    GP_TRY(const std::vector<double> given, context.reals(i, "number"));
    if (given.size() != 1) return context.problem(Code::kBadModel, "its inputs are no scalars", "export again");
    if (i >= 3) *numbers[i - 3] = given[0];
    else if (given[0] >= 1 && given[0] < 1e6) *counts[i] = static_cast<int64_t>(given[0]);
  }
  const bool sane = form.bins > 0 && form.length > 0 && form.rate > 0 && form.low >= 0 && form.low <= form.high &&
                    form.high <= static_cast<double>(form.rate);
  if (!sane) return context.problem(Code::kBadModel, "its sizes and edges make no table", "export the model again");
  GP_TRY_VOID(context.has_room_for(form.bins * form.rows()));
  return form;
}

/// The rows where the triangles begin, peak and end, in order.
std::vector<int64_t> corners(const MelForm& form) {
  std::vector<int64_t> result;
  const double low = mel_of(form.low), step = (mel_of(form.high) - low) / static_cast<double>(form.bins + 2);
  for (int64_t i = 0; i < form.bins + 2; ++i) {
    const double hertz = hertz_of(low + static_cast<double>(i) * step);
    result.push_back(static_cast<int64_t>(
        std::floor(static_cast<double>(form.length + 1) * hertz / static_cast<double>(form.rate))));
  }
  return result;
}

std::vector<double> mel_table(const MelForm& form) {
  std::vector<double> table(static_cast<size_t>(form.rows() * form.bins), 0);
  const std::vector<int64_t> row = corners(form);
  const auto put = [&](int64_t at, size_t bin, int64_t part, int64_t whole) {
    if (at >= 0 && at < form.rows())
      table[static_cast<size_t>(at * form.bins) + bin] = static_cast<double>(part) / static_cast<double>(whole);
  };
  for (size_t bin = 0; bin < static_cast<size_t>(form.bins); ++bin) {
    const int64_t begin = row[bin], peak = row[bin + 1], end = row[bin + 2];
    if (begin == peak) put(peak, bin, 1, 1);
    for (int64_t at = begin; begin < peak && at <= peak; ++at) put(at, bin, at - begin, peak - begin);
    for (int64_t at = peak; at < end; ++at) put(at, bin, end - at, end - peak);
  }
  return table;
}

Status lower_mel_weights(NodeContext& context) {
  GP_TRY(const MelForm form, mel_form(context));
  const int type = static_cast<int>(context.int_attribute("output_datatype", 1));
  const std::optional<ir::DType> dtype = dtype_of_onnx(type);
  if (!dtype || !ir::is_floating(*dtype))
    return context.problem(Code::kUnsupportedType, text("makes a table of type ", onnx_type_name(type)),
                           "use a floating type");
  GP_TRY(const ir::ValueId table,
         context.constant("table", *dtype, {ir::Dim::fixed(form.rows()), ir::Dim::fixed(form.bins)}, mel_table(form)));
  context.bind(0, table);
  return Ok{};
}

}  // namespace

std::vector<HandlerEntry> mel_handlers() { return {{"MelWeightMatrix", lower_mel_weights}}; }

}  // namespace graphpipe::frontend
