#pragma once
// The options of newly created tensors, including their device.

#include <c10/core/TensorOptions.h>

#include "runtime/program.h"

namespace graphpipe::runtime {

/// `gpu`: its number, or -1: the CPU.
inline at::TensorOptions options_on(int32_t gpu, at::ScalarType type) {
  return at::TensorOptions(type).device(gpu < 0 ? c10::DeviceType::CPU : c10::DeviceType::CUDA,
                                        static_cast<c10::DeviceIndex>(gpu));
}

/// On the device of the stage function's other tensors.
inline at::TensorOptions options_of(const StageArguments& a, at::ScalarType type) { return options_on(a.gpu, type); }

}  // namespace graphpipe::runtime
