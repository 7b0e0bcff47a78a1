#include "tests/runtime/two_stage_plan.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>
#include <stdlib.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <stdexcept>

#include "runtime/error.h"
#include "runtime/io/safetensors.h"
#include "runtime/io/sha256.h"
#include "support/mapped_file.h"
#include "wire/data_table.h"
#include "wire/manifest.h"

namespace graphpipe::runtime::test {
namespace {

using wire::ActionOp;
using wire::SampleRange;

constexpr int64_t kWidth = 6;

constexpr DimRow kRows[] = {{1, 1}, {kWidth, 0}};
constexpr DimRow kColumns[] = {{kWidth, 0}, {1, 1}};
constexpr DimRow kMatrix[] = {{kWidth, 0}, {kWidth, 0}};
constexpr DimRow kVector[] = {{kWidth, 0}};
constexpr TensorRow kRowsTensor{ElementType::kFloat32, kRows, 0, 1};
constexpr TensorRow kColumnsTensor{ElementType::kFloat32, kColumns, 1, 1};

// Stage 0 slots: 0 x, 1 h, 2 gradient of h (received), 3 gradient before tanh.
void forward0(const StageArguments& a) { a.slot[1] = at::tanh(at::linear(a.slot[0], a.weights[0], a.weights[1])); }
void input0(const StageArguments& a) { a.slot[3] = at::tanh_backward(a.slot[2], a.slot[1]); }
void add_share(at::Tensor& sum, const at::Tensor& share) {
  if (sum.defined()) sum.add_(share);
  else sum = share.clone();
}
void weight0(const StageArguments& a) {
  add_share(a.gradients[0], at::mm(a.slot[3].t(), a.slot[0]));
  add_share(a.gradients[1], a.slot[3].sum(0));
}
void weight0_drifting(const StageArguments& a) {
  weight0(a);
  if (a.first_sample > 0) a.weights[0].add_(1e-6);
}
void weight0_awaiting_sums(const StageArguments& a) {
  weight0(a);
  if (a.first_sample < 4) return;
  if (a.listener == nullptr) throw std::runtime_error("nobody listens to the last backward");
  constexpr int32_t kBoth[] = {0, 1};
  const at::Tensor own = a.gradients[0].clone();
  const auto begin = std::chrono::steady_clock::now();
  a.listener->note_complete(kBoth);
  for (; at::equal(a.gradients[0], own); a.listener->note_complete({}))
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(60))
      throw std::runtime_error("no sum has arrived while the backward ran");
}
void forward0_columns(const StageArguments& a) {
  a.slot[1] = at::tanh(at::linear(a.slot[0], a.weights[0], a.weights[1])).t();
}

// Stage 1 slots: 0 h (received), 1 t, 2 scale, 3 difference, 4 loss, 5 gradient of h, 6 gradient of y.
void forward1(const StageArguments& a) {
  a.slot[3] = at::linear(a.slot[0], a.weights[0]).sub(a.slot[1]);
  a.slot[4] = a.slot[3].square().sum().mul(a.slot[2]);
}
void input1(const StageArguments& a) {
  a.slot[6] = a.slot[3].mul(a.slot[2].mul(2));
  a.slot[5] = at::mm(a.slot[6], a.weights[0]);
}
void weight1(const StageArguments& a) { add_share(a.gradients[0], at::mm(a.slot[6].t(), a.slot[0])); }
void forward1_columns(const StageArguments& a) {
  a.slot[3] = at::linear(a.slot[0].t(), a.weights[0]).sub(a.slot[1]);
  a.slot[4] = a.slot[3].square().sum().mul(a.slot[2]);
}
void input1_columns(const StageArguments& a) {
  a.slot[6] = a.slot[3].mul(a.slot[2].mul(2));
  a.slot[5] = at::mm(a.slot[6], a.weights[0]).t();
}
void weight1_columns(const StageArguments& a) { add_share(a.gradients[0], at::mm(a.slot[6].t(), a.slot[0].t())); }

constexpr ParamRow kParams0[] = {{"w0", {ElementType::kFloat32, kMatrix, -1, 1}, ParamRole::kTrainable, 0},
                                 {"b0", {ElementType::kFloat32, kVector, -1, 1}, ParamRole::kTrainable, 1}};
constexpr ParamRow kParams1[] = {{"w1", {ElementType::kFloat32, kMatrix, -1, 1}, ParamRole::kTrainable, 2}};
constexpr ParamRow kParams1Shared[] = {{"w0", {ElementType::kFloat32, kMatrix, -1, 1}, ParamRole::kTrainable, 0}};
constexpr ParamRow kParams1Frozen[] = {{"w1", {ElementType::kFloat32, kMatrix, -1, 1}, ParamRole::kFrozen, 2}};
constexpr DataRow kData0[] = {{"x", kRowsTensor, 0}};
constexpr DataRow kData1[] = {{"t", kRowsTensor, 1}};
constexpr BoundaryRow kBoundary0[] = {{0, false, 1, 2, 1, kRowsTensor}};
constexpr BoundaryRow kBoundary1[] = {{0, true, 0, 5, 1, kRowsTensor}};
constexpr BoundaryRow kBoundary0Columns[] = {{0, false, 1, 2, 1, kColumnsTensor}};
constexpr BoundaryRow kBoundary1Columns[] = {{0, true, 0, 5, 1, kColumnsTensor}};
constexpr KeptRow kKept0[] = {{1, "Tanh", "tower/tanh"}};
constexpr KeptRow kKept1[] = {{3, "Sub", "head/difference"}};
constexpr int32_t kKeep0[] = {0};
constexpr int32_t kKeep1[] = {0, 1};
constexpr int32_t kSharing[] = {0, 1};

// The columns variant saves h before the transpose that the boundary shows.
void input0_columns(const StageArguments& a) { a.slot[3] = at::tanh_backward(a.slot[2].t(), a.slot[1].t()); }

// Items of a stage's replica: what part of each micro-batch it works on.
std::vector<SampleRange> items(const PlanShape& shape, int32_t stage, int32_t replica) {
  std::vector<SampleRange> out;
  const int64_t size = shape.micro_batch[stage], count = shape.replicas[stage];
  for (int64_t first = 0, index = 0; first < shape.batch; first += size, ++index) {
    const SampleRange whole{first, std::min(first + size, shape.batch)};
    SampleRange part = whole;
    if (shape.mode == ReplicaMode::kSplit)
      part = {first + replica * whole.size() / count, first + (replica + 1) * whole.size() / count};
    else if (index % count != replica) continue;
    if (!part.empty()) out.push_back(part);
  }
  return out;
}

void write_npy(const std::string& path, int64_t samples, double phase) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(samples) + ", 6), }";
  header.resize(118, ' ');
  header.back() = '\n';
  std::ofstream out(path, std::ios::binary);
  out << std::string("\x93NUMPY\x01\x00", 8) << static_cast<char>(header.size()) << '\0' << header;
  for (int64_t i = 0; i < samples * kWidth; ++i) {
    const auto value = static_cast<float>(std::sin(static_cast<double>(i) * 0.7 + phase));
    out.write(reinterpret_cast<const char*>(&value), sizeof value);
  }
}

}  // namespace

const char* const kFolderDigest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

at::Tensor waves(std::vector<int64_t> dims, double phase) {
  at::Tensor tensor = at::empty(dims, at::TensorOptions().dtype(at::kFloat));
  for (int64_t i = 0; i < tensor.numel(); ++i)
    tensor.mutable_data_ptr<float>()[i] = static_cast<float>(0.4 * std::cos(static_cast<double>(i) * 1.3 + phase));
  return tensor;
}

TwoStagePlan::TwoStagePlan(const PlanShape& shape) : shape_(shape) {
  const bool columns = shape.batch_last;
  entries_[0] = {.stage = 0,
                 .slot_size = 4,
                 .forward = columns ? forward0_columns : forward0,
                 .input_gradient = columns ? input0_columns : input0,
                 .weight_gradient = shape.drifts        ? weight0_drifting
                                    : shape.awaits_sums ? weight0_awaiting_sums
                                                        : weight0,
                 .params = kParams0,
                 .data = kData0,
                 .boundaries = columns ? kBoundary0Columns : kBoundary0,
                 .recompute_inputs = kKeep0,
                 .kept = kKept0};
  entries_[1] = {.stage = 1,
                 .slot_size = 7,
                 .forward = columns ? forward1_columns : forward1,
                 .input_gradient = columns ? input1_columns : input1,
                 .weight_gradient = columns ? weight1_columns : weight1,
                 .params = shape.shared ? std::span<const ParamRow>(kParams1Shared) : kParams1,
                 .data = kData1,
                 .boundaries = columns ? kBoundary1Columns : kBoundary1,
                 .loss_slot = 4,
                 .loss_scale_slot = 2,
                 .recompute_inputs = kKeep1,
                 .kept = kKept1};
  if (shape.last_frozen) {
    entries_[1].params = kParams1Frozen;
    entries_[1].weight_gradient = nullptr;
  }
  held_[0] = held_[2] = &entries_[0];
  held_[1] = &entries_[1];
  edges_ = {{0, 1}};
  if (shape.shared) groups_ = {{0, kSharing}};
  for (int32_t stage = 0; stage < 2; ++stage) {
    int32_t slots = 1;
    for (int32_t replica = 0; replica < shape.replicas[stage]; ++replica) {
      placement_.push_back({stage, replica, device(stage, replica)});
      slots = std::max(slots, static_cast<int32_t>(items(shape, stage, replica).size()));
    }
    stages_.push_back({shape.micro_batch[stage], shape.replicas[stage], shape.mode, slots, shape.recompute});
  }
  const int32_t devices = shape.one_device ? 1 : shape.replicas[0] + shape.replicas[1];
  actions_.resize(static_cast<size_t>(devices));
  for (const bool backward : {false, true}) {
    for (const int32_t stage : backward ? std::vector{1, 0} : std::vector{0, 1})
      for (int32_t replica = 0; replica < shape.replicas[stage]; ++replica) {
        int32_t slot = 0;
        for (const SampleRange& range : items(shape, stage, replica)) add_item(stage, replica, range, slot++, backward);
      }
  }
  if (shape.states_memory)
    for (const PlacementRow& row : placement_)
      for (const ActionOp op : {ActionOp::kFlush, ActionOp::kTraceMark})
        actions(row.device)
            .push_back({.op = op, .stage = row.stage, .replica = row.replica, .range = {0, shape.batch}});
  for (const ActionOp op : {ActionOp::kReduceGradient, ActionOp::kNorm, ActionOp::kStep})
    for (const PlacementRow& row : placement_)
      if (row.stage == 0 || !shape.last_frozen)
        actions(row.device)
            .push_back({.op = op,
                        .stage = row.stage,
                        .replica = row.replica,
                        .range = {0, shape.batch},
                        .version = op == ActionOp::kStep ? 1 : 0});
  table_ = {.plan_digest = kFolderDigest,
            .batch = shape.batch,
            .device_count = devices,
            .optimizer = shape.optimizer,
            .loss = {.normalizer = LossRow::Normalizer::kSamples, .elements_per_sample = kWidth},
            .stages = stages_,
            .edges = edges_,
            .placement = placement_,
            .groups = groups_};
  for (int32_t d = 0; d < devices; ++d) {
    const bool first = d < shape.replicas[0];
    const std::span<const StageEntry* const> held = shape.one_device ? std::span(held_, 2)
                                                    : first          ? std::span(held_, 1)
                                                                     : std::span(held_ + 1, 1);
    programs_.push_back({d, &table_, actions(d), held});
  }
}

int32_t TwoStagePlan::device(int32_t stage, int32_t replica) const {
  if (shape_.one_device) return 0;
  return stage == 0 ? replica : shape_.replicas[0] + replica;
}

// Receives before the compute, sends after it, one message per overlapping item of the other stage.
void TwoStagePlan::add_item(int32_t stage, int32_t replica, SampleRange range, int32_t slot, bool backward) {
  std::vector<wire::ActionRow>& list = actions(device(stage, replica));
  const bool receives = backward ? stage == 0 : stage == 1;
  int pieces = 0;
  const auto transfers = [&](ActionOp op) {
    for (int32_t peer = 0; peer < shape_.replicas[1 - stage]; ++peer)
      for (const SampleRange& other : items(shape_, 1 - stage, peer))
        if (const SampleRange part = wire::intersect(range, other); !part.empty()) {
          if (wire::is_send(op) && part != range)
            list.push_back(
                {.op = ActionOp::kSlice, .stage = stage, .replica = replica, .range = part, .edge = 0, .slot = slot});
          ++pieces;
          list.push_back({.op = op,
                          .stage = stage,
                          .replica = replica,
                          .range = part,
                          .edge = 0,
                          .peer_replica = peer,
                          .slot = slot});
        }
  };
  const auto state = [&](ActionOp memory) {
    if (shape_.states_memory)
      list.push_back({.op = memory, .stage = stage, .replica = replica, .range = range, .slot = slot});
  };
  state(backward ? ActionOp::kReload : ActionOp::kAllocate);
  if (receives) transfers(backward ? ActionOp::kReceiveBackward : ActionOp::kReceiveForward);
  if (backward && shape_.recompute)
    list.push_back({.op = ActionOp::kRecompute, .stage = stage, .replica = replica, .range = range, .slot = slot});
  if (receives && pieces > 1)
    list.push_back(
        {.op = ActionOp::kConcatenate, .stage = stage, .replica = replica, .range = range, .edge = 0, .slot = slot});
  // Stage 1 splits its backward, stage 0 does not.
  const ActionOp op = !backward ? ActionOp::kForward : stage == 1 ? ActionOp::kInputGradient : ActionOp::kBackward;
  list.push_back({.op = op, .stage = stage, .replica = replica, .range = range, .slot = slot});
  if (!receives) transfers(backward ? ActionOp::kSendBackward : ActionOp::kSendForward);
  if (op == ActionOp::kInputGradient)
    list.push_back({.op = ActionOp::kWeightGradient, .stage = stage, .replica = replica, .range = range, .slot = slot});
  state(backward ? ActionOp::kRelease : ActionOp::kOffload);
}

std::string make_folder(bool shared, int64_t samples) {
  std::vector<NamedTensor> weights = {{"w0", waves({6, 6}, 0)}, {"b0", waves({6}, 1)}};
  if (!shared) weights.push_back({"w1", waves({6, 6}, 2)});
  return make_folder(weights, samples);
}

std::string make_folder(const std::vector<NamedTensor>& weights, int64_t samples) {
  std::string folder = "/tmp/graphpipe_test_XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("mkdtemp");
  write_safetensors(folder + "/weights.safetensors", weights);
  const MappedFile file = value_or_throw(MappedFile::open(folder + "/weights.safetensors"));
  std::ofstream(folder + "/manifest.txt") << wire::print_manifest(
      {kFolderDigest, {{"weights.safetensors", static_cast<int64_t>(file.bytes().size()), sha256_hex(file.bytes())}}});
  const auto input = [](const char* name) {
    return wire::DataEntry{.name = name, .type = ElementType::kFloat32, .batch_axis = 0, .dims = {1, 6}, .ids = {}};
  };
  std::ofstream(folder + "/data.txt") << wire::print_data_table({.batch = 1, .entries = {input("x"), input("t")}});
  write_npy(folder + "/x.npy", samples, 0);
  write_npy(folder + "/t.npy", samples, 0.4);
  return folder;
}

}  // namespace graphpipe::runtime::test
