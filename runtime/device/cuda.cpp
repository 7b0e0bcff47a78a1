// An NVIDIA GPU through LibTorch. Kernels run on LibTorch's current stream, which is not the default one: that cannot
// be recorded.

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <optional>

#include "runtime/device/cuda_recorder.h"
#include "runtime/device/device.h"
#include "runtime/error.h"

namespace graphpipe::runtime {
namespace {

// LibTorch's GPU kernels register themselves when their library is loaded. Programs load it only here: if it were
// linked, every host would need a dozen CUDA libraries.
void load_kernels() {
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
  fail(Code::kEnvironment, text("LibTorch's CUDA kernels cannot be loaded: ", dlerror()),
       "install the CUDA libraries that LibTorch was built with, or choose --device cpu");
}

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  fail(Code::kEnvironment, text("CUDA: ", what, ": ", cudaGetErrorString(result)), "check the GPU and its driver");
}

/// Into pinned memory: a copy into pageable memory waits for the GPU.
class PinnedDownload final : public Download {
 public:
  PinnedDownload(const at::Tensor& tensor, cudaStream_t stream)
      : host_(at::empty(tensor.sizes(), tensor.options().device(c10::DeviceType::CPU).pinned_memory(true))) {
    host_.copy_(tensor, /*non_blocking=*/true);
    check(cudaEventCreateWithFlags(&copied_, cudaEventDisableTiming), "event");
    check(cudaEventRecord(copied_, stream), "event");
  }
  PinnedDownload(const PinnedDownload&) = delete;
  PinnedDownload& operator=(const PinnedDownload&) = delete;
  ~PinnedDownload() override { cudaEventDestroy(copied_); }
  const at::Tensor& tensor() override {
    check(cudaEventSynchronize(copied_), "event");
    return host_;
  }

 private:
  at::Tensor host_;
  cudaEvent_t copied_ = nullptr;
};

class EventClock final : public DeviceClock {
 public:
  explicit EventClock(c10::DeviceIndex index) : index_(index) {}
  EventClock(const EventClock&) = delete;
  EventClock& operator=(const EventClock&) = delete;
  ~EventClock() override {
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
  }

  void point() override {
    if (points_ == events_.size()) check(cudaEventCreate(&events_.emplace_back()), "event");
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(index_).stream();
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream, &status), "stream");
    // In a graph, an event that is recorded when the graph runs.
    const unsigned flags = status == cudaStreamCaptureStatusActive ? cudaEventRecordExternal : cudaEventRecordDefault;
    check(cudaEventRecordWithFlags(events_[points_++], stream, flags), "event");
  }
  std::vector<int64_t> nanoseconds_between(bool keep) override {
    std::vector<int64_t> result;
    if (points_ > 0) check(cudaEventSynchronize(events_[points_ - 1]), "event");
    for (size_t i = 1; i < points_; ++i) {
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, events_[i - 1], events_[i]), "event");
      result.push_back(static_cast<int64_t>(1e6 * static_cast<double>(milliseconds)));
    }
    if (!keep) points_ = 0;
    return result;
  }

 private:
  c10::DeviceIndex index_;
  std::vector<cudaEvent_t> events_;
  size_t points_ = 0;
};

class Cuda final : public Device {
 public:
  explicit Cuda(c10::DeviceIndex index) : device_(c10::DeviceType::CUDA, index) {
    load_kernels();
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    c10::cuda::set_device(index);
    stream_ = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, index);
    c10::cuda::setCurrentCUDAStream(*stream_);
    // The same bits in every run: cuDNN has algorithms that add in the order in which threads arrive, and its attention
    // is not among those of kernels/gpu_attention.h.
    at::globalContext().setDeterministicCuDNN(true);
    at::globalContext().setSDPUseCuDNN(false);
  }
  int32_t gpu() const override { return device_.index(); }
  at::Tensor upload(const at::Tensor& host) const override {
    // A copy from pageable memory waits for what is queued. Pinned memory stays pinned: it is scarce.
    constexpr size_t kLargestPinned = 64 << 20;
    if (!host.is_cpu() || host.nbytes() > kLargestPinned) return host.to(device_);
    return host.pin_memory().to(device_, /*non_blocking=*/true);
  }
  at::Tensor download(const at::Tensor& tensor) const override {
    return tensor.contiguous().to(c10::Device(c10::DeviceType::CPU));
  }
  std::unique_ptr<Download> begin_download(const at::Tensor& tensor) const override {
    return std::make_unique<PinnedDownload>(tensor, stream());
  }
  void* compute_stream() const override { return stream(); }
  void enter_thread() const override {
    c10::cuda::set_device(device_.index());
    c10::cuda::setCurrentCUDAStream(*stream_);
  }
  DeviceCopy copies() const override {
    return [stream = stream()](void* to, const void* from, size_t bytes) {
      check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "copy");
    };
  }
  std::unique_ptr<Recorder> open_recorder() const override {
    return record_cuda(device_.index(), stream(), [this](int64_t bytes) { take_for_recordings(bytes); });
  }
  void finish() const override { c10::cuda::getCurrentCUDAStream(device_.index()).synchronize(); }
  std::unique_ptr<DeviceClock> open_clock() const override { return std::make_unique<EventClock>(device_.index()); }
  int64_t held_bytes() const override { return stats().allocated_bytes[0].current + recorded_bytes_; }
  int64_t peak_bytes() const override {
    return std::max(earlier_peak_, stats().allocated_bytes[0].peak + recorded_bytes_);
  }
  void reset_peak() override {
    earlier_peak_ = 0;
    c10::cuda::CUDACachingAllocator::resetPeakStats(device_.index());
  }

 private:
  cudaStream_t stream() const { return c10::cuda::getCurrentCUDAStream(device_.index()).stream(); }
  c10::CachingDeviceAllocator::DeviceStats stats() const {
    return c10::cuda::CUDACachingAllocator::getDeviceStats(device_.index());
  }
  // Tensors in the recordings' memory are none of the allocator's, once they are made by recordings.
  void take_for_recordings(int64_t bytes) const {
    earlier_peak_ = peak_bytes();
    recorded_bytes_ = bytes;
    c10::cuda::CUDACachingAllocator::resetPeakStats(device_.index());
  }

  c10::Device device_;
  std::optional<c10::cuda::CUDAStream> stream_;
  mutable int64_t recorded_bytes_ = 0, earlier_peak_ = 0;
};

}  // namespace

std::unique_ptr<Device> open_cuda(int32_t local_rank) {
  const c10::DeviceIndex count = c10::cuda::device_count();
  if (count == 0) return nullptr;
  return std::make_unique<Cuda>(static_cast<c10::DeviceIndex>(std::max(0, local_rank) % count));
}

}  // namespace graphpipe::runtime
