#pragma once
// Work that a device records once and runs again without its host going through it: on GPUs, a CUDA graph. Launching
// kernels one by one costs the host more than small kernels take.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace graphpipe::runtime {

class Recording {
 public:
  virtual ~Recording() = default;
  /// Queues the work again, at the addresses at which it was recorded.
  virtual void run() const = 0;
  /// Kernels and copies.
  virtual int64_t size() const = 0;
};

/// Recordings share memory: what is released between two of them, a later one takes. So they must be run in the order in
/// which they were recorded, and whatever else reads their memory must be done with it by the recording before which it
/// was released; any recording may be left out.
class Recorder {
 public:
  virtual ~Recorder() = default;
  /// Records what `work` queues, in place of running it. Tensors that it makes lie in the recordings' memory. Null if
  /// it cannot be recorded, as what waits for the device; nothing has been queued then. Throws c10::OutOfMemoryError.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& work) = 0;
  /// A copy that lies in the recordings' memory. Throws c10::OutOfMemoryError.
  virtual at::Tensor copy(const at::Tensor& tensor) = 0;
  /// Nothing more will be recorded: from here on the device counts the recordings' memory among what is held.
  virtual void finish() = 0;
};

}  // namespace graphpipe::runtime
