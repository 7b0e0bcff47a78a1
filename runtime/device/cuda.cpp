// An NVIDIA GPU through LibTorch. Kernels run on LibTorch's current stream.

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>

#include <algorithm>

#include "runtime/device/device.h"
#include "runtime/error.h"

namespace graphpipe::runtime {
namespace {

// LibTorch's kernels for GPUs announce themselves when their library is loaded. Programs load it only here: linked, it
// would ask for a dozen CUDA libraries on every host.
void load_kernels() {
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
  fail(Code::kEnvironment, text("LibTorch's CUDA kernels cannot be loaded: ", dlerror()),
       "install the CUDA libraries that LibTorch was built with, or choose --device cpu");
}

class Cuda final : public Device {
 public:
  explicit Cuda(c10::DeviceIndex index) : device_(c10::DeviceType::CUDA, index) {
    load_kernels();
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    c10::cuda::set_device(index);
  }
  bool is_host() const override { return false; }
  at::Tensor upload(const at::Tensor& host) const override { return host.to(device_); }
  at::Tensor download(const at::Tensor& tensor) const override {
    return tensor.contiguous().to(c10::Device(c10::DeviceType::CPU));
  }
  void* compute_stream() const override { return c10::cuda::getCurrentCUDAStream(device_.index()).stream(); }
  int64_t held_bytes() const override {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device_.index());
    return stats.allocated_bytes[0].current;
  }
  int64_t peak_bytes() const override {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device_.index());
    return stats.allocated_bytes[0].peak;
  }
  void reset_peak() override { c10::cuda::CUDACachingAllocator::resetPeakStats(device_.index()); }

 private:
  c10::Device device_;
};

}  // namespace

std::unique_ptr<Device> open_cuda(int32_t local_rank) {
  const c10::DeviceIndex count = c10::cuda::device_count();
  if (count == 0) return nullptr;
  return std::make_unique<Cuda>(static_cast<c10::DeviceIndex>(std::max(0, local_rank) % count));
}

}  // namespace graphpipe::runtime
