#pragma once

#include <string>
#include <utility>

#include "support/diagnostic.h"

namespace graphpipe::driver {

/// A flag that says what GraphPipe cannot take: exit code 2.
inline Diagnostic usage(std::string flag, std::string message, std::string hint) {
  return Diagnostic{.code = Code::kUsage,
                    .origin = ModelText(std::move(flag)),
                    .message = std::move(message),
                    .hint = std::move(hint)};
}

}  // namespace graphpipe::driver
