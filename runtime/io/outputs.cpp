#include "runtime/io/outputs.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/movedim.h>

#include <cstdio>
#include <map>
#include <optional>

#include "runtime/executor/check_weights.h"
#include "runtime/tensors.h"

namespace graphpipe::runtime {
namespace {

// A part's name is its first sample in this many digits, followed by the output's name.
constexpr size_t kDigits = 20;

std::vector<NamedTensor> join_outputs(const std::vector<NamedTensor>& parts) {
  std::map<std::string, std::vector<at::Tensor>> outputs;
  for (const NamedTensor& part : parts) outputs[part.name.substr(kDigits)].push_back(part.tensor);
  std::vector<NamedTensor> joined;
  for (const auto& [name, rows] : outputs) joined.push_back({name, at::cat(rows)});
  return joined;
}

}  // namespace

void KeptOutputs::keep(const StageEntry& entry, const std::vector<at::Tensor>& slot, wire::SampleRange item,
                       int64_t first_sample, const Device& device) {
  std::string digits = std::to_string(first_sample);
  digits.insert(0, kDigits - digits.size(), '0');
  for (const OutputRow& output : entry.outputs) {
    const at::Tensor rows = message_rows(slot[static_cast<size_t>(output.slot)], output.tensor, item, item);
    const at::Tensor first = device.download(rows).movedim(output.tensor.batch_axis, 0);
    parts_.push_back({digits + output.name, first.contiguous()});
  }
}

void write_outputs(const std::string& path, const std::vector<NamedTensor>& parts) {
  const std::vector<NamedTensor> joined = join_outputs(parts);
  if (const std::optional<std::string> found = not_finite_tensor(joined)) {
    const Diagnostic warning{
        .code = Code::kCheckFailed,
        .severity = Severity::kWarning,
        .origin = ModelText(path),
        .message = "the outputs are not all finite: " + *found,
        .hint = "where that is not meant, look at the weights and the data, or compute in a wider type"};
    std::fprintf(stderr, "%s\n", to_line(warning).c_str());
  }
  write_safetensors(path, joined);
}

}  // namespace graphpipe::runtime
