#pragma once
// CUDA graphs of what is queued on one stream.

#include <c10/core/Device.h>
#include <cuda_runtime_api.h>

#include <memory>

#include "runtime/device/recorder.h"

namespace graphpipe::runtime {

/// The stream must be the calling thread's current one, and not the default stream, which cannot be recorded.
std::unique_ptr<Recorder> record_cuda(c10::DeviceIndex index, cudaStream_t stream);

}  // namespace graphpipe::runtime
