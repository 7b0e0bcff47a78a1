// Laws of recorded calls, on a device that queues its work as a GPU does: whatever can be recorded or not, every step
// computes what plain calls compute, and from the third step on what was recorded is not called again.

#include "runtime/executor/recorded_calls.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/random_fill.h"

using namespace graphpipe;
using namespace graphpipe::runtime;

namespace {

using Work = std::function<void()>;

/// What a recording in progress has queued, and the memory of all recordings.
struct Tape {
  std::vector<Work>* queued = nullptr;
  bool in_memory = false;
  std::vector<at::Tensor> memory;
  int fails_after = std::numeric_limits<int>::max();  // tensors that still find memory
};
Tape* tape = nullptr;
int calls = 0;  // of functions that were not recorded

void queue(Work work) {
  if (tape != nullptr && tape->queued != nullptr) return tape->queued->push_back(std::move(work));
  work();
}

bool is_released(const at::Tensor& memory) { return memory.use_count() == 1; }  // but for the tape nobody holds it

at::Tensor make(int64_t elements) {
  if (tape == nullptr || !tape->in_memory) return at::empty({elements});
  if (tape->fails_after-- <= 0) TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory");
  for (const at::Tensor& memory : tape->memory)
    if (is_released(memory) && memory.numel() == elements) return memory;
  return tape->memory.emplace_back(at::empty({elements}));
}

/// A tensor as kernels know it: by its address.
struct Floats {
  explicit Floats(const at::Tensor& tensor) : data(tensor.mutable_data_ptr<float>()), count(tensor.numel()) {}
  float& operator[](int64_t index) const { return data[index]; }
  float* data;
  int64_t count;
};

void fill_with_nan(at::Tensor& tensor) { tensor.fill_(std::numeric_limits<float>::quiet_NaN()); }

class TapeRecording final : public Recording {
 public:
  explicit TapeRecording(std::vector<Work> work) : work_(std::move(work)) {}
  void run() const override {
    for (const Work& each : work_) each();
  }
  int64_t size() const override { return std::ssize(work_); }

 private:
  std::vector<Work> work_;
};

class TapeRecorder final : public Recorder {
 public:
  TapeRecorder() = default;
  TapeRecorder(const TapeRecorder&) = delete;
  TapeRecorder& operator=(const TapeRecorder&) = delete;
  /// Others use the memory again that nobody holds any more.
  ~TapeRecorder() override {
    for (at::Tensor& memory : tape->memory)
      if (is_released(memory)) fill_with_nan(memory);
  }
  std::unique_ptr<Recording> record(const Work& work) override {
    std::vector<Work> queued;
    tape->queued = &queued;
    tape->in_memory = true;
    bool worked = true;
    std::exception_ptr no_memory;
    try {
      work();
    } catch (const c10::OutOfMemoryError&) {
      no_memory = std::current_exception();
    } catch (const c10::Error&) {
      worked = false;
    }
    tape->queued = nullptr;
    tape->in_memory = false;
    if (no_memory) std::rethrow_exception(no_memory);
    return worked ? std::make_unique<TapeRecording>(std::move(queued)) : nullptr;
  }
  void finish() override {}
  at::Tensor copy(const at::Tensor& tensor) override {
    struct InMemory {
      InMemory() { tape->in_memory = true; }
      ~InMemory() { tape->in_memory = false; }
    };
    const auto made = [&] {
      const InMemory in_memory;
      return make(tensor.numel());
    };
    return made().copy_(tensor);
  }
};

class TapeDevice final : public Device {
 public:
  explicit TapeDevice(bool records) { tape = records ? &tape_ : nullptr; }
  TapeDevice(const TapeDevice&) = delete;
  TapeDevice& operator=(const TapeDevice&) = delete;
  ~TapeDevice() override { tape = nullptr; }
  at::Tensor upload(const at::Tensor& host) const override { return host; }
  at::Tensor download(const at::Tensor& tensor) const override { return tensor; }
  std::unique_ptr<Download> begin_download(const at::Tensor&) const override { return nullptr; }
  int64_t held_bytes() const override { return 0; }
  int64_t peak_bytes() const override { return 0; }
  void reset_peak() override {}
  std::unique_ptr<Recorder> open_recorder() const override {
    return tape == nullptr ? nullptr : std::make_unique<TapeRecorder>();
  }
  /// No step may read what an earlier one has left.
  void spoil() {
    for (at::Tensor& memory : tape_.memory) fill_with_nan(memory);
  }
  void fail_after(int tensors) { tape_.fails_after = tensors; }

 private:
  Tape tape_;
};

// A stage of one weight w that receives x and sends y = w x + r, where r stands for a random number: it is drawn by the
// step and the first sample. dw += sum(x dy), dx = w dy.
enum : int32_t { kReceived, kSaved, kSent, kSentGradient, kReceivedGradient, kSlots };
bool forward_waits = false;

void forward(const StageArguments& a) {
  calls += tape == nullptr || tape->queued == nullptr ? 1 : 0;
  TORCH_CHECK(!forward_waits || tape == nullptr || tape->queued == nullptr, "cannot wait while it records");
  at::Tensor saved = make(a.samples), sent = make(a.samples);
  queue([x = Floats(a.slot[kReceived]), w = Floats(a.weights[0]), to = Floats(saved), y = Floats(sent),
         key = RandomKey{.step = a.step, .first_sample = a.first_sample, .step_on_device = a.step_on_device}] {
    const auto drawn = static_cast<float>(step_of(key)) + 0.125f * static_cast<float>(key.first_sample);
    for (int64_t i = 0; i < x.count; ++i) to[i] = x[i], y[i] = w[0] * x[i] + drawn;
  });
  a.slot[kSaved] = saved;
  a.slot[kSent] = sent;
  a.slot[kReceived].reset();
}

void backward(const StageArguments& a) {
  calls += tape == nullptr || tape->queued == nullptr ? 1 : 0;
  const bool first = !a.gradients[0].defined();
  if (first) a.gradients[0] = make(1);
  at::Tensor x = std::exchange(a.slot[kSaved], {}), dy = std::exchange(a.slot[kSentGradient], {});
  at::Tensor received = make(a.samples);
  queue([x = Floats(x), dy = Floats(dy), w = Floats(a.weights[0]), dw = Floats(a.gradients[0]), dx = Floats(received),
         first] {
    if (first) dw[0] = 0;
    for (int64_t i = 0; i < x.count; ++i) dw[0] += x[i] * dy[i], dx[i] = w[0] * dy[i];
  });
  a.slot[kReceivedGradient] = received;
}

const std::vector<ParamRow> kParams(1);
const std::vector<BoundaryRow> kBoundaries{
    {.is_input = true, .slot = kReceived, .gradient_slot = kReceivedGradient, .gradient_count = 1},
    {.is_input = false, .slot = kSent, .gradient_slot = kSentGradient, .gradient_count = 1}};
const StageEntry kEntry{.slot_size = kSlots, .params = kParams, .boundaries = kBoundaries};

struct Stage {
  std::vector<at::Tensor> weights{at::full({1}, 0.5)};
  std::vector<at::Tensor> sent, received;  // what messages carry, of the last step
  at::Tensor gradient;
  int64_t first_sample = 0;
  static constexpr int64_t kWidth = 3, kItems = 2;

  /// The last call is of another stage of the device. `arrives_early`: another rank's share of the gradient is there
  /// before it, and the sum of both, which lies elsewhere, takes the gradient's place.
  void step(RecordedCalls& recorded, int number, int64_t width, bool arrives_early) {
    std::vector<at::Tensor> gradients(1), of_other_stage(1);
    std::vector<std::vector<at::Tensor>> slots(kItems + 1, std::vector<at::Tensor>(kSlots));
    sent.clear();
    received.clear();
    recorded.begin_step();
    const auto call = [&](StageFunction function, int64_t item) {
      recorded.call(function,
                    {.weights = weights.data(),
                     .gradients = item < kItems ? gradients.data() : of_other_stage.data(),
                     .slot = slots[item].data(),
                     .samples = item < kItems ? width : last_width(width),
                     .first_sample = first_sample + item * width,
                     .step = static_cast<uint64_t>(number)},
                    kEntry);
    };
    for (int64_t item = 0; item < kItems; ++item) {
      slots[item][kReceived] = at::full({width}, number + 0.25 * static_cast<double>(item));
      call(forward, item);
      sent.push_back(slots[item][kSent]);
    }
    for (int64_t item = 0; item < kItems; ++item) {
      slots[item][kSentGradient] = at::full({width}, number - 0.5 * static_cast<double>(item));
      call(backward, item);
      received.push_back(slots[item][kReceivedGradient]);
    }
    if (arrives_early) gradients[0] = gradients[0].clone();
    slots[kItems][kReceived] = at::full({last_width(width)}, static_cast<double>(number));
    call(forward, kItems);
    sent.push_back(slots[kItems][kSent]);
    gradient = gradients[0].clone();
    weights[0].sub_(gradients[0], 0.001);
  }

 private:
  /// As wide as the gradient, whose memory it could take.
  static int64_t last_width(int64_t width) { return width == kWidth ? 1 : 2; }
};

/// Runs a stage with recordings beside one without, and compares them after every step.
class Pair {
 public:
  explicit Pair(bool waits = false) : recorded_(device_) { forward_waits = waits; }

  wire::GraphUse step(int64_t width = Stage::kWidth) {
    const std::vector<at::Tensor> earlier = stage_.sent, kept = copies(earlier);
    device_.spoil();
    const int before = calls;
    constexpr int kRecorded = 2;
    stage_.step(recorded_, number_, width, number_ == kRecorded);
    called_ = calls - before;
    // Messages may still read what the step before has sent.
    for (size_t i = 0; i < earlier.size(); ++i) CHECK(at::equal(earlier[i], kept[i]));
    Tape* const recording = std::exchange(tape, nullptr);
    RecordedCalls never(plain_device_);
    plain_.step(never, number_++, width, false);
    tape = recording;
    CHECK(at::equal(stage_.gradient, plain_.gradient));
    CHECK(at::equal(stage_.weights[0], plain_.weights[0]));
    for (size_t i = 0; i < plain_.sent.size(); ++i) CHECK(at::equal(stage_.sent[i], plain_.sent[i]));
    for (size_t i = 0; i < plain_.received.size(); ++i) CHECK(at::equal(stage_.received[i], plain_.received[i]));
    return recorded_.use();
  }
  /// Functions that the last step called.
  int called() const { return called_; }
  void start_at(int64_t sample) { stage_.first_sample = plain_.first_sample = sample; }
  void move_weight() { stage_.weights[0] = stage_.weights[0].clone(); }
  void fail_after(int tensors) { device_.fail_after(tensors); }

 private:
  static std::vector<at::Tensor> copies(const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> out;
    for (const at::Tensor& tensor : tensors) out.push_back(tensor.clone());
    return out;
  }

  TapeDevice plain_device_{false}, device_{true};
  RecordedCalls recorded_;
  Stage stage_, plain_;
  int number_ = 1, called_ = 0;
};

constexpr int kCalls = 5, kForwards = 3;  // of a step

TEST_CASE("recorded calls: the first step calls, the second records, later ones run what it recorded") {
  const c10::InferenceMode no_autograd;
  Pair pair;
  CHECK(pair.step().graphs == 0);
  CHECK(pair.called() == kCalls);
  CHECK(pair.step().graphs == kCalls);
  CHECK(pair.called() == 0);
  for (int i = 0; i < 3; ++i) {
    const wire::GraphUse use = pair.step();
    CHECK(use.calls == kCalls);
    CHECK(use.graphs == kCalls);
    CHECK(pair.called() == 0);
  }
}

TEST_CASE("recorded calls: what waits for the device is called, and what follows is recorded") {
  const c10::InferenceMode no_autograd;
  Pair pair(/*waits=*/true);
  pair.step();
  pair.step();
  CHECK(pair.called() == kForwards);
  for (int i = 0; i < 3; ++i) {
    CHECK(pair.step().graphs == kCalls - kForwards);
    CHECK(pair.called() == kForwards);
  }
}

TEST_CASE("recorded calls: of other samples the functions are called") {
  const c10::InferenceMode no_autograd;
  Pair pair;
  for (int i = 0; i < 3; ++i) pair.step();
  pair.start_at(100);
  CHECK(pair.step().graphs == 0);
  CHECK(pair.called() == kCalls);
}

TEST_CASE("recorded calls: with weights elsewhere or items of another size the functions are called") {
  const c10::InferenceMode no_autograd;
  Pair pair;
  for (int i = 0; i < 3; ++i) pair.step();
  CHECK(pair.step(1).graphs == 0);
  CHECK(pair.called() == kCalls);
  CHECK(pair.step().graphs == kCalls);
  pair.move_weight();
  CHECK(pair.step().graphs == 0);
  CHECK(pair.called() == kCalls);
}

TEST_CASE("recorded calls: without memory for them the functions are called") {
  const c10::InferenceMode no_autograd;
  constexpr int kTensors = 14;  // of a step that is recorded, copies of what comes from elsewhere included
  for (int tensors = 0; tensors < kTensors; ++tensors) {
    CAPTURE(tensors);
    Pair pair;
    pair.fail_after(tensors);
    for (int i = 0; i < 2; ++i) pair.step();
    for (int i = 0; i < 2; ++i) CHECK(pair.step().graphs == 0);
    CHECK(pair.called() == kCalls);
  }
}

}  // namespace
