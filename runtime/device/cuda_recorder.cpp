// With the CUDA runtime itself: LibTorch's own class of graphs lies in a library that programs do not link (cuda.cpp).

#include "runtime/device/cuda_recorder.h"

#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/Exception.h>

#include <utility>

namespace graphpipe::runtime {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

// The recordings' memory: nothing else in the process takes memory by this name.
constexpr c10::MempoolId_t kPool{1, 0};

/// While it lives, what is allocated for the stream lies in the pool.
class InPool {
 public:
  InPool(c10::DeviceIndex index, cudaStream_t stream) : index_(index) {
    allocator::beginAllocateToPool(index, kPool, [stream](cudaStream_t each) { return each == stream; });
  }
  InPool(const InPool&) = delete;
  InPool& operator=(const InPool&) = delete;
  ~InPool() {
    allocator::endAllocateToPool(index_, kPool);
    allocator::releasePool(index_, kPool);  // the use that beginAllocateToPool() counted
  }

 private:
  c10::DeviceIndex index_;
};

class CudaRecording final : public Recording {
 public:
  CudaRecording(cudaGraphExec_t graph, int64_t size, cudaStream_t stream)
      : graph_(graph), size_(size), stream_(stream) {}
  CudaRecording(const CudaRecording&) = delete;
  CudaRecording& operator=(const CudaRecording&) = delete;
  ~CudaRecording() override { cudaGraphExecDestroy(graph_); }
  void run() const override {
    const cudaError_t result = cudaGraphLaunch(graph_, stream_);
    TORCH_CHECK(result == cudaSuccess, "CUDA graph: ", cudaGetErrorString(result));
  }
  int64_t size() const override { return size_; }

 private:
  cudaGraphExec_t graph_;
  int64_t size_;
  cudaStream_t stream_;
};

class CudaRecorder final : public Recorder {
 public:
  CudaRecorder(c10::DeviceIndex index, cudaStream_t stream, std::function<void(int64_t)> takes)
      : index_(index), stream_(stream), takes_(std::move(takes)) {
    // Memory that earlier steps have used would not serve the recordings.
    allocator::emptyCache();
    allocator::createOrIncrefPool(index_, kPool);
  }
  CudaRecorder(const CudaRecorder&) = delete;
  CudaRecorder& operator=(const CudaRecorder&) = delete;
  ~CudaRecorder() override {
    allocator::releasePool(index_, kPool);
    takes_(0);
  }

  std::unique_ptr<Recording> record(const std::function<void()>& work) override {
    cudaGraph_t graph = nullptr;
    std::exception_ptr problem;
    {
      const InPool in_pool(index_, stream_);
      // Other threads may wait for the device meanwhile; this one may not.
      if (cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal) != cudaSuccess) return forget_error();
      try {
        work();
      } catch (...) {
        problem = std::current_exception();
      }
      // Fails if the work did what cannot be recorded.
      if (cudaStreamEndCapture(stream_, &graph) != cudaSuccess) forget_error();
    }
    std::unique_ptr<Recording> recording = problem || graph == nullptr ? nullptr : made_of(graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    if (problem) rethrow_if_out_of_memory(problem);
    return recording;
  }

  void finish() override {
    int64_t bytes = 0;
    for (const allocator::SegmentInfo& segment : allocator::snapshot(kPool).segments)
      if (segment.owner_private_pool_id == kPool) bytes += static_cast<int64_t>(segment.total_size);
    takes_(bytes);
  }

  at::Tensor copy(const at::Tensor& tensor) override {
    at::Tensor copied;
    {
      const InPool in_pool(index_, stream_);
      copied = at::empty_like(tensor);
    }
    return copied.copy_(tensor);
  }

 private:
  static std::unique_ptr<Recording> forget_error() {
    cudaGetLastError();
    return nullptr;
  }
  // Anything else says that the work cannot be recorded: when it is run, it may yet succeed, or says what is wrong.
  static void rethrow_if_out_of_memory(const std::exception_ptr& problem) {
    try {
      std::rethrow_exception(problem);
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const std::exception&) {
      forget_error();
    }
  }

  std::unique_ptr<Recording> made_of(cudaGraph_t graph) const {
    size_t size = 0;
    cudaGraphExec_t executable = nullptr;
    if (cudaGraphGetNodes(graph, nullptr, &size) != cudaSuccess ||
        cudaGraphInstantiate(&executable, graph, 0) != cudaSuccess)
      return forget_error();
    return std::make_unique<CudaRecording>(executable, static_cast<int64_t>(size), stream_);
  }

  c10::DeviceIndex index_;
  cudaStream_t stream_;
  std::function<void(int64_t)> takes_;
};

}  // namespace

std::unique_ptr<Recorder> record_cuda(c10::DeviceIndex index, cudaStream_t stream, std::function<void(int64_t)> takes) {
  try {
    return std::make_unique<CudaRecorder>(index, stream, std::move(takes));
  } catch (const c10::Error&) {
    return nullptr;  // the run says that no call ran as a graph
  }
}

}  // namespace graphpipe::runtime
