#pragma once
// A CUDA stream without a GPU: a thread that does what is queued, in order. Device memory is the host's.

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

struct CUstream_st {
 public:
  /// Its thread is never joined: like a stream with work that waits for a lost peer, it ends with the process.
  CUstream_st();
  void push(std::function<void()> work);

 private:
  [[noreturn]] void run();

  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<std::function<void()>> queue_;
};

namespace graphpipe::fake {

/// The stream itself, or the default stream for null.
CUstream_st& stream_of(cudaStream_t stream);
/// A short sleep of a thread that polls memory.
void pause();

}  // namespace graphpipe::fake
