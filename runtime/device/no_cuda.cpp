// This build has no CUDA.

#include "runtime/device/device.h"
#include "runtime/random_fill.h"
#include "support/check.h"

namespace graphpipe::runtime {

std::unique_ptr<Device> open_cuda(int32_t) { return nullptr; }

void fill_on_gpu(const GpuFill&, void*) { GP_CHECK(false); }  // no tensor lies on a GPU

}  // namespace graphpipe::runtime
