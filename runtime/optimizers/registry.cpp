#include "runtime/optimizers/registry.h"

#include <algorithm>

#include "support/check.h"

namespace graphpipe::runtime {

std::span<const UpdateRule> update_rules() {
  static const UpdateRule kRules[] = {
      sgd_rule(), adam_rule(), adamw_rule(), lamb_rule(), adagrad_rule(), row_wise_adagrad_rule(), muon_rule(),
  };
  return kRules;
}

const UpdateRule& update_rule(std::string_view name) {
  const auto found =
      std::ranges::find(update_rules(), name, [](const auto& rule) { return std::string_view(rule.name); });
  GP_CHECK(found != update_rules().end());
  return *found;
}

}  // namespace graphpipe::runtime
