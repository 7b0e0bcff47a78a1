#pragma once
// Where the tests of this folder compute: on the CPU, or with GRAPHPIPE_TEST_DEVICE=cuda, in a build with CUDA, on the
// GPU (scripts/gpu-check). Tensors of the tests themselves lie on the CPU.

#include "runtime/device/device.h"

namespace graphpipe::ops_run {

/// Opened before the first tensor: LibTorch asks once which kernels there are.
const runtime::Device& device();

}  // namespace graphpipe::ops_run
