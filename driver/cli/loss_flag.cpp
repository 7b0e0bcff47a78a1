#include "driver/cli/loss_flag.h"

#include <string_view>
#include <vector>

namespace graphpipe::driver {
namespace {

using passes::LossKind;
using passes::LossSpec;

struct KindRow {
  std::string_view name;
  LossKind kind;
  bool takes_label;
};
constexpr KindRow kKinds[] = {
    {"cross_entropy", LossKind::kCrossEntropy, true},
    {"mse", LossKind::kMeanSquaredError, true},
    {"bce", LossKind::kBceWithLogits, true},
    {"contrastive", LossKind::kContrastive, false},
    {"output", LossKind::kOutput, false},
};

Diagnostic bad_flag(const std::string& flag, std::string message) {
  return Diagnostic{.code = Code::kUsage,
                    .origin = ModelText("--loss " + flag),
                    .message = std::move(message),
                    .hint =
                        "write cross_entropy:OUTPUT,LABEL, mse:OUTPUT,LABEL, bce:OUTPUT,LABEL, contrastive:OUTPUT "
                        "or output:NAME; cross_entropy also takes ,ignore=N and ,axis=N, output takes ,sum"};
}

// Reads one of ignore=N, axis=N, sum; false where it is none of them.
bool parse_option(std::string_view part, LossSpec& spec) {
  int64_t number = 0;
  if (part == "sum" && spec.kind == LossKind::kOutput) {
    spec.reduction = passes::LossReduction::kSum;
    return true;
  }
  if (spec.kind != LossKind::kCrossEntropy) return false;
  if (part.starts_with("ignore=") && read_number(part.substr(7), number)) {
    spec.ignore_index = number;
    return true;
  }
  if (part.starts_with("axis=") && read_number(part.substr(5), number) && number >= 0 && number < 64) {
    spec.class_axis = static_cast<int>(number);
    return true;
  }
  return false;
}

}  // namespace

Result<LossSpec> parse_loss(const std::string& flag) {
  LossSpec spec;
  if (flag.empty()) return spec;
  const size_t colon = flag.find(':');
  const KindRow* row = nullptr;
  for (const KindRow& candidate : kKinds)
    if (candidate.name == flag.substr(0, colon)) row = &candidate;
  if (row == nullptr || colon == std::string::npos) return bad_flag(flag, "the loss is not one that GraphPipe knows");
  spec.kind = row->kind;
  const std::vector<std::string_view> parts = split(std::string_view(flag).substr(colon + 1), ",");
  const size_t names = row->takes_label ? 2 : 1;
  if (parts.size() < names || parts[0].empty() || parts[names - 1].empty())
    return bad_flag(flag,
                    row->takes_label ? "it takes the names of an output and a label" : "it takes an output's name");
  spec.output = ModelText(std::string(parts[0]));
  if (row->takes_label) spec.label = ModelText(std::string(parts[1]));
  for (size_t i = names; i < parts.size(); ++i)
    if (!parse_option(parts[i], spec))
      return bad_flag(flag, text("it does not take ", quoted(ModelText(std::string(parts[i])))));
  return spec;
}

}  // namespace graphpipe::driver
