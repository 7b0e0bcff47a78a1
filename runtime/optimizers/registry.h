#pragma once
// The update rules, one per entry of wire/optimizers.h, each in the file of its name.

#include <span>

#include "runtime/optimizers/update_rule.h"

namespace graphpipe::runtime {

std::span<const UpdateRule> update_rules();
/// GP_CHECKs that the name exists: generated programs only use names of wire/optimizers.h.
const UpdateRule& update_rule(std::string_view name);

}  // namespace graphpipe::runtime
