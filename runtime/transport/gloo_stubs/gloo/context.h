#pragma once
// See gloo/algorithm.h. Context is never made or called here; its real layout is LibTorch's secret.

#include <chrono>

namespace gloo {
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};
namespace transport {
class UnboundBuffer;
}
}  // namespace gloo
