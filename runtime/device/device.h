#pragma once
// Where a rank computes. The tensors of stages live on the device; messages of host transports are staged through the
// CPU (the copy waits for the work queued so far).

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/device/recorder.h"
#include "runtime/executor/step_arena.h"
#include "runtime/transport/channel.h"

namespace graphpipe::runtime {

/// Points in the work queued on a device, which it reaches later; time is measured on the device's own clock.
class DeviceClock {
 public:
  virtual ~DeviceClock() = default;
  virtual void point() = 0;
  /// Waits until all points are reached and returns the nanoseconds from each to the next. Points that lie in a
  /// recording are reached again with it, and must be kept for that; otherwise no points are left afterwards.
  virtual std::vector<int64_t> nanoseconds_between(bool keep) = 0;
};

/// A copy of a tensor in CPU memory that may still be in progress.
class Download {
 public:
  virtual ~Download() = default;
  /// Waits for the copy, but not for what was queued after it.
  virtual const at::Tensor& tensor() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  /// The index of the GPU on this host, or -1 for the CPU.
  virtual int32_t gpu() const { return -1; }
  bool is_host() const { return gpu() < 0; }
  /// The tensor on the device; itself if it is there already. Up to 64 MiB it does not wait for queued work.
  virtual at::Tensor upload(const at::Tensor& host) const = 0;
  /// A contiguous CPU tensor with the same elements; itself if it is one.
  virtual at::Tensor download(const at::Tensor& tensor) const = 0;
  /// The same without waiting for the copy.
  virtual std::unique_ptr<Download> begin_download(const at::Tensor& tensor) const = 0;
  /// The stream that the stages' kernels run on (a cudaStream_t; null is the default stream, or no GPU).
  virtual void* compute_stream() const { return nullptr; }
  /// From now on the calling thread uses the device as the one that opened it does: what both queue runs in that order.
  virtual void enter_thread() const {}
  /// Copies within the device's memory; null for the CPU.
  virtual DeviceCopy copies() const { return {}; }
  /// Null if the device records nothing. One at a time.
  virtual std::unique_ptr<Recorder> open_recorder() const { return nullptr; }
  /// Waits for what has been queued on it.
  virtual void finish() const {}
  /// Null if work is done when the call that requests it returns.
  virtual std::unique_ptr<DeviceClock> open_clock() const { return nullptr; }
  /// Bytes of tensors held now.
  virtual int64_t held_bytes() const = 0;
  /// Peak bytes of tensors held since the last reset.
  virtual int64_t peak_bytes() const = 0;
  virtual void reset_peak() = 0;
  /// Between begin_step and end_step, this thread runs a step of the kind: what it allocates may have fixed addresses.
  virtual void begin_step(StepKind) const {}
  virtual void end_step() const {}
  /// The memory that the plan expects a step's tensors to need.
  virtual void plan_arena(int64_t) const {}
  virtual ArenaNumbers arena() const { return {}; }
};

std::unique_ptr<Device> open_cpu();
/// GPU number `local_rank` modulo the number of GPUs, or null if this build or this host has none.
std::unique_ptr<Device> open_cuda(int32_t local_rank);

/// "cpu" or "cuda". Throws RunError.
std::unique_ptr<Device> open_device(const std::string& name, int32_t local_rank);

}  // namespace graphpipe::runtime
