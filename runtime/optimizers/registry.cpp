#include "runtime/optimizers/registry.h"

#include <algorithm>

#include "support/check.h"

// One line per optimizer: it declares the function of the file of that name, and calls it.
#define GRAPHPIPE_UPDATE_RULES(RULE) \
  RULE(sgd_rule)                     \
  RULE(adam_rule)                    \
  RULE(adamw_rule)                   \
  RULE(lamb_rule)                    \
  RULE(adagrad_rule)                 \
  RULE(row_wise_adagrad_rule)        \
  RULE(muon_rule)

namespace graphpipe::runtime {

#define GRAPHPIPE_DECLARE(rule) UpdateRule rule();
GRAPHPIPE_UPDATE_RULES(GRAPHPIPE_DECLARE)
#undef GRAPHPIPE_DECLARE

std::span<const UpdateRule> update_rules() {
#define GRAPHPIPE_ASK(rule) rule(),
  static const UpdateRule kRules[] = {GRAPHPIPE_UPDATE_RULES(GRAPHPIPE_ASK)};
#undef GRAPHPIPE_ASK
  return kRules;
}

const UpdateRule& update_rule(std::string_view name) {
  const auto found =
      std::ranges::find(update_rules(), name, [](const auto& rule) { return std::string_view(rule.name); });
  GP_CHECK(found != update_rules().end());
  return *found;
}

}  // namespace graphpipe::runtime
