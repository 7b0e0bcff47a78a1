#include "runtime/device/device.h"
#include "runtime/error.h"
#include "runtime/executor/allocator.h"

namespace graphpipe::runtime {
namespace {

class ItIsThere final : public Download {
 public:
  explicit ItIsThere(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  const at::Tensor& tensor() override { return tensor_; }

 private:
  at::Tensor tensor_;
};

class Cpu final : public Device {
 public:
  at::Tensor upload(const at::Tensor& host) const override { return host; }
  at::Tensor download(const at::Tensor& tensor) const override { return tensor.contiguous(); }
  std::unique_ptr<Download> begin_download(const at::Tensor& tensor) const override {
    return std::make_unique<ItIsThere>(tensor.contiguous());
  }
  int64_t held_bytes() const override { return tensor_bytes(); }
  int64_t peak_bytes() const override { return peak_tensor_bytes(); }
  void reset_peak() override { reset_peak_tensor_bytes(); }
  void begin_step(StepKind kind) const override { begin_arena_step(kind); }
  void end_step() const override { end_arena_step(); }
  void plan_arena(int64_t bytes) const override { runtime::plan_arena(bytes); }
  ArenaNumbers arena() const override { return arena_numbers(); }
};

}  // namespace

std::unique_ptr<Device> open_cpu() { return std::make_unique<Cpu>(); }

std::unique_ptr<Device> open_device(const std::string& name, int32_t local_rank) {
  if (name == "cpu") return open_cpu();
  if (name != "cuda")
    fail(Code::kUsage, "there is no device " + quoted(ModelText(name)), "choose --device cpu or --device cuda");
  std::unique_ptr<Device> device = open_cuda(local_rank);
  if (!device)
    fail(Code::kEnvironment, "this build, or this host, has no CUDA device",
         "build with GRAPHPIPE_CUDA on a machine with a GPU, or choose --device cpu");
  return device;
}

}  // namespace graphpipe::runtime
