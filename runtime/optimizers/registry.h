#pragma once
// The update rules, one per entry of wire/optimizers.h; each is the file of its name.

#include <span>

#include "runtime/optimizers/update_rule.h"

namespace graphpipe::runtime {

std::span<const UpdateRule> update_rules();
/// GP_CHECKs that there is one of this name: generated programs name those of wire/optimizers.h only.
const UpdateRule& update_rule(std::string_view name);

}  // namespace graphpipe::runtime
