#pragma once
// See gloo/algorithm.h.

namespace gloo::transport {
class Device;
}
