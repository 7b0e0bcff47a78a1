#pragma once
// Where a rank computes. Tensors of stages live on the device; messages of host transports are copied to the CPU and
// back (the copy waits for the device's work so far).

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/executor/step_arena.h"

namespace graphpipe::runtime {

/// Points in the work that has been queued on a device, which passes them later, on a clock of its own.
class DeviceClock {
 public:
  virtual ~DeviceClock() = default;
  virtual void point() = 0;
  /// Waits until all points are passed: the nanoseconds from each to the next. Then there are none.
  virtual std::vector<int64_t> nanoseconds_between() = 0;
};

/// A copy of a tensor in the CPU's memory that may still be under way.
class Download {
 public:
  virtual ~Download() = default;
  /// Waits until it is there, and not for what was queued behind it.
  virtual const at::Tensor& tensor() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  /// The number of the GPU on this host, or -1: the CPU.
  virtual int32_t gpu() const { return -1; }
  bool is_host() const { return gpu() < 0; }
  /// The tensor on the device; itself where it is there already. Up to 64 MiB it waits for nothing that is queued.
  virtual at::Tensor upload(const at::Tensor& host) const = 0;
  /// A contiguous CPU tensor with the same elements; itself where it is one.
  virtual at::Tensor download(const at::Tensor& tensor) const = 0;
  /// The same without waiting for it.
  virtual std::unique_ptr<Download> begin_download(const at::Tensor& tensor) const = 0;
  /// The stream that the stages' kernels run on (a cudaStream_t; null is the default stream, or no GPU).
  virtual void* compute_stream() const { return nullptr; }
  /// Waits for what has been queued on it.
  virtual void finish() const {}
  /// Null where work is done when the call that asks for it returns.
  virtual std::unique_ptr<DeviceClock> open_clock() const { return nullptr; }
  /// Bytes of tensors held now.
  virtual int64_t held_bytes() const = 0;
  /// Most bytes of tensors held since the last reset.
  virtual int64_t peak_bytes() const = 0;
  virtual void reset_peak() = 0;
  /// Between the two, this thread runs a step of the kind: what it allocates may have fixed places.
  virtual void begin_step(StepKind) const {}
  virtual void end_step() const {}
  /// What the plan says that a step's tensors need.
  virtual void plan_arena(int64_t) const {}
  virtual ArenaNumbers arena() const { return {}; }
};

std::unique_ptr<Device> open_cpu();
/// The GPU number `local_rank` modulo the number of GPUs, or null where this build or this host has none.
std::unique_ptr<Device> open_cuda(int32_t local_rank);

/// "cpu" or "cuda". Throws RunError.
std::unique_ptr<Device> open_device(const std::string& name, int32_t local_rank);

}  // namespace graphpipe::runtime
