#pragma once
// CUDA graphs of what is queued on one stream.

#include <c10/core/Device.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/device/recorder.h"

namespace graphpipe::runtime {

/// Null where LibTorch's allocator has no pools (backend:cudaMallocAsync). The stream must be the calling thread's
/// current one, and not the default stream, which cannot be recorded. `takes(bytes)` is called with the size of the
/// recordings' memory when they are finished, and with 0 when they end.
std::unique_ptr<Recorder> record_cuda(c10::DeviceIndex index, cudaStream_t stream, std::function<void(int64_t)> takes);

}  // namespace graphpipe::runtime
