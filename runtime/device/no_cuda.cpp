// This build has no CUDA.

#include "runtime/device/device.h"

namespace graphpipe::runtime {

std::unique_ptr<Device> open_cuda(int32_t) { return nullptr; }

}  // namespace graphpipe::runtime
