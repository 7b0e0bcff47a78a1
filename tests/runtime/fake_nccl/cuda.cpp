// The calls of the CUDA runtime that the NCCL transport makes, over threads and host memory. Preloaded, they stand in
// front of the real ones. Events and streams live as long as the process.

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/runtime/fake_nccl/stream.h"

struct CUevent_st {
  std::atomic<uint64_t> recorded{0};
  std::atomic<uint64_t> reached{0};
};

CUstream_st::CUstream_st() { std::thread([this] { run(); }).detach(); }

void CUstream_st::push(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  news_.notify_one();
}

void CUstream_st::run() {
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      news_.wait(lock, [this] { return !queue_.empty(); });
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

namespace graphpipe::fake {

CUstream_st& stream_of(cudaStream_t stream) {
  static auto* const default_stream = new CUstream_st;
  return stream == nullptr ? *default_stream : *stream;
}

void pause() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

}  // namespace graphpipe::fake

using graphpipe::fake::stream_of;

extern "C" {

// How a program finds out that it runs over the fake.
int graphpipe_fake_nccl = 1;
// Pieces of memory that were asked for.
int graphpipe_fake_allocations = 0;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const uint64_t number = ++event->recorded;
  stream_of(stream).push([event, number] { event->reached = number; });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return event->reached == event->recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const uint64_t number = event->recorded;
  stream_of(stream).push([event, number] {
    while (event->reached < number) graphpipe::fake::pause();
  });
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  ++graphpipe_fake_allocations;
  *memory = std::malloc(bytes);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) { return cudaMalloc(memory, bytes); }
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  stream_of(stream).push([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t) { return "an error of the fake CUDA runtime"; }

}  // extern "C"
