// Runs every example of the op dictionary. The laws:
//   - the outputs have the types, shapes and (where ONNX defines the op) the values that the dictionary and ONNX's
//     reference evaluator give;
//   - an output with a batch axis, computed for some of the samples, is that part of the output for all samples, and
//     an output without the batch is the same for any samples;
//   - beside its outputs a kernel holds no more memory than the dictionary says;
//   - the gradient that the row builds equals LibTorch's autograd through the emitted forward, and central differences
//     of it, in float64.
// The functions run on the device of test_device.h.

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <iostream>
#include <limits>
#include <string>

#include "runtime/tensors.h"
#include "tests/ops_run/case_table.h"
#include "tests/ops_run/memory_marks.h"
#include "tests/ops_run/reference.h"
#include "tests/ops_run/test_device.h"
#include "wire/element_type.h"

namespace graphpipe::ops_run {
namespace {

using Tensors = std::vector<at::Tensor>;

[[maybe_unused]] const bool are_bytes_counted = (runtime::count_tensor_bytes(), true);

std::vector<int64_t> sizes_at(const TensorCase& tensor, int64_t samples) {
  std::vector<int64_t> sizes;
  for (const runtime::DimRow& dim : tensor.dims) {
    int64_t size = dim.factor;
    for (int i = 0; i < dim.power; ++i) size *= samples;
    sizes.push_back(size);
  }
  return sizes;
}

at::ScalarType scalar_type(const TensorCase& tensor, bool wide) {
  const at::ScalarType type = runtime::scalar_type(tensor.type);
  return wide && type == at::kFloat ? at::kDouble : type;
}

at::Tensor input_tensor(const TensorCase& tensor, bool wide) {
  const at::Tensor values = at::tensor(at::ArrayRef<double>(tensor.values.begin(), tensor.values.end()), at::kDouble);
  return values.reshape(sizes_at(tensor, kCaseSamples)).to(scalar_type(tensor, wide));
}

Tensors all_inputs(const Case& each, bool wide) {
  Tensors inputs;
  for (const TensorCase& input : each.inputs) inputs.push_back(input_tensor(input, wide));
  return inputs;
}

/// The part of a tensor that belongs to samples [first, first + count).
at::Tensor part_of(const at::Tensor& whole, const TensorCase& tensor, int64_t first, int64_t count) {
  if (tensor.batch_axis < 0) return whole;
  const int64_t rows = tensor.dims[static_cast<size_t>(tensor.batch_axis)].factor;
  return whole.narrow(tensor.batch_axis, first * rows, count * rows).contiguous();
}

/// What the function leaves in the slots behind those that it is given.
Tensors run_function(runtime::StageFunction function, Tensors slot, size_t results, int64_t samples = kCaseSamples,
                     int64_t first = 0) {
  const size_t inputs = slot.size();
  for (at::Tensor& input : slot) input = device().upload(input);
  slot.resize(inputs + results);
  runtime::StageArguments arguments;
  arguments.slot = slot.data();
  arguments.samples = samples;
  arguments.first_sample = first;
  arguments.seed = 7;
  arguments.step = 3;
  arguments.gpu = device().gpu();
  function(arguments);
  for (at::Tensor& result : slot)
    if (result.defined() && !result.is_cpu()) result = result.cpu();
  return Tensors(slot.begin() + static_cast<int64_t>(inputs), slot.end());
}

/// Outputs, then gradients. Inputs that the op updates are given as copies.
Tensors run(const Case& each, bool wide, Tensors slot, int64_t samples = kCaseSamples, int64_t first = 0) {
  for (int updated : each.updated) slot[static_cast<size_t>(updated)] = slot[static_cast<size_t>(updated)].clone();
  return run_function(wide ? each.run_double : each.run, std::move(slot),
                      each.outputs.size() + each.differentiated.size(), samples, first);
}

/// The largest difference, relative to the larger of 1 and the expected value; infinite where shapes or NaNs differ.
double difference(const at::Tensor& found, const at::Tensor& expected) {
  if (found.sizes() != expected.sizes()) return INFINITY;
  if (expected.numel() == 0) return 0;
  const at::Tensor a = found.detach().to(at::kDouble), b = expected.detach().to(at::kDouble);
  const at::Tensor equal = a.eq(b).logical_or(a.isnan().logical_and(b.isnan()));
  const at::Tensor error = (a - b).abs().div(b.abs().clamp_min(1.0)).masked_fill(equal, 0.0);
  const double largest = error.max().item<double>();
  return std::isnan(largest) ? INFINITY : largest;
}

void for_each_case(const std::function<void(const Case&)>& check) {
  at::set_num_threads(1);
  for (std::span<const Case> part : all_cases()) {
    for (const Case& each : part) {
      CAPTURE(std::string(each.name));
      if (each.run == nullptr) continue;
      try {
        check(each);
      } catch (const std::exception& error) {
        const std::string what = error.what();
        FAIL_CHECK(std::string(each.name), ": ", what.substr(0, what.find("\nException raised")));
      }
    }
  }
}

/// The sum that is differentiated.
at::Tensor weighted_sum(const Case& each, const Tensors& inputs, const Tensors& outputs) {
  at::Tensor sum = at::zeros({}, at::kDouble);
  for (size_t i = 0; i < each.weights.size(); ++i) {
    const at::Tensor& output = outputs[static_cast<size_t>(each.weighted_outputs[i])];
    sum = sum + (output * inputs[static_cast<size_t>(each.weights[i])]).sum();
  }
  return sum;
}

/// Central differences of the weighted sum by some elements of one input, spread over it; the others are copied from
/// `found`.
at::Tensor central_differences(const Case& each, const Tensors& inputs, size_t input, const at::Tensor& found) {
  constexpr double kStep = 1e-5;
  constexpr int64_t kMaxElements = 7;
  at::Tensor gradient = found.clone(at::MemoryFormat::Contiguous);
  double* out = gradient.mutable_data_ptr<double>();
  for (int64_t i = 0; i < gradient.numel(); i += 1 + gradient.numel() / kMaxElements) {
    double sums[2];
    for (int side = 0; side < 2; ++side) {
      Tensors moved = inputs;
      moved[input] = inputs[input].clone();
      moved[input].mutable_data_ptr<double>()[i] += side == 0 ? kStep : -kStep;
      sums[side] = weighted_sum(each, inputs, run(each, true, moved)).item<double>();
    }
    out[i] = (sums[0] - sums[1]) / (2 * kStep);
  }
  return gradient;
}

}  // namespace

TEST_CASE("every example can be inferred and differentiated") {
  size_t count = 0;
  for (std::span<const Case> part : all_cases()) {
    for (const Case& each : part) {
      ++count;
      CAPTURE(std::string(each.name));
      if (each.problem != nullptr) FAIL_CHECK(std::string(each.name), ": ", each.problem);
    }
  }
  CHECK(count > 200);
}

TEST_CASE("outputs have the types and shapes of the dictionary") {
  for_each_case([](const Case& each) {
    for (bool wide : {false, true}) {
      const Tensors results = run(each, wide, all_inputs(each, wide));
      for (size_t i = 0; i < each.outputs.size(); ++i) {
        CAPTURE(i);
        REQUIRE(results[i].defined());
        CHECK(results[i].sizes().vec() == sizes_at(each.outputs[i], kCaseSamples));
        CHECK(static_cast<int>(results[i].scalar_type()) == static_cast<int>(scalar_type(each.outputs[i], wide)));
      }
      for (size_t i = 0; i < each.differentiated.size(); ++i) {
        const TensorCase& input = each.inputs[static_cast<size_t>(each.differentiated[i])];
        const at::Tensor& gradient = results[each.outputs.size() + i];
        CHECK(gradient.sizes().vec() == sizes_at(input, kCaseSamples));
        CHECK(static_cast<int>(gradient.scalar_type()) == static_cast<int>(scalar_type(input, wide)));
      }
    }
  });
}

TEST_CASE("beside its outputs a kernel holds no more memory than the dictionary says") {
  if (!device().is_host()) return;  // only tensors of CPUs are counted
  // Tensors of a number for each channel or row, and what oneDNN takes for itself, whatever the sizes.
  constexpr double kSmall = 160, kOfOneDnn = 65536;
  for_each_case([](const Case& each) {
    const Tensors inputs = all_inputs(each, false);
    run(each, false, inputs);
    const MemoryMarks measured = memory_marks;
    REQUIRE(measured.steps.size() == each.steps.size());
    int64_t before = measured.at_first;
    for (size_t i = 0; i < each.steps.size(); ++i) {
      const Case::Step& step = each.steps[i];
      const double beside = static_cast<double>(measured.steps[i].peak - before) - step.made;
      CAPTURE(std::string(step.op));
      const double missing_temporaries = (beside - step.scratch) / step.largest;
      CAPTURE(missing_temporaries);
      CHECK(beside <= step.scratch + (std::string_view(step.op).starts_with("Conv") ? kOfOneDnn : kSmall));
      before = measured.steps[i].held;
    }
  });
}

TEST_CASE("outputs that are said to have memory of their own share none") {
  size_t count = 0;
  for_each_case([&](const Case& each) {
    if (!each.owns_outputs) return;
    ++count;
    const Tensors inputs = all_inputs(each, false);
    const Tensors results = run(each, false, inputs);
    const auto memory = [](const at::Tensor& tensor) { return tensor.storage().data(); };
    for (size_t i = 0; i < each.outputs.size(); ++i) {
      if (results[i].numel() == 0) continue;
      for (const at::Tensor& input : inputs) CHECK(memory(results[i]) != memory(input));
      for (size_t j = 0; j < i; ++j) CHECK(memory(results[i]) != memory(results[j]));
    }
  });
  CHECK(count > 100);
}

TEST_CASE("an op that overwrites its input gives the bits and strides that it gives in new memory") {
  size_t count = 0;
  for_each_case([&](const Case& each) {
    if (each.run_in_place == nullptr) return;
    ++count;
    const Tensors inputs = all_inputs(each, false);
    // The other case has further inputs, the weights of the sum.
    const size_t operands = inputs.size() - each.weights.size();
    // Each operand in turn lies in memory in another order.
    for (size_t turned = 0; turned <= operands; ++turned) {
      Tensors given = inputs;
      if (turned < operands && given[turned].dim() > 1)
        given[turned] = given[turned].transpose(0, -1).contiguous().transpose(0, -1);
      const Tensors alone(given.begin(), given.begin() + static_cast<int64_t>(operands));
      const at::Tensor found = run_function(each.run_in_place, alone, 1).front();
      given.front() = given.front().neg();
      const at::Tensor expected = run(each, false, given).front();
      CHECK(found.equal(expected));
      CHECK(found.strides() == expected.strides());
    }
  });
  CHECK(count > 10);
}

TEST_CASE("outputs have the values of ONNX's reference evaluator") {
  const References references = read_references(GRAPHPIPE_SOURCE_DIR "/tests/data/op_reference.txt");
  for_each_case([&](const Case& each) {
    const auto reference = references.find(each.name);
    if (reference == references.end()) {
      FAIL_CHECK(std::string(each.name), " has no recorded reference: run tests/data/make_op_reference.py");
      return;
    }
    const Tensors results = run(each, false, all_inputs(each, false));
    for (size_t i = 0; i < std::min(reference->second.size(), each.outputs.size()); ++i) {
      CAPTURE(i);
      const ReferenceTensor& expected = reference->second[i];
      CHECK(expected.dtype == wire::find_element_type(each.outputs[i].type)->short_name);
      CHECK(difference(results[i], at::tensor(expected.values, at::kDouble).reshape(expected.shape)) < 2e-6);
    }
  });
}

TEST_CASE("outputs with a batch axis can be computed for some of the samples") {
  constexpr int64_t kFirst = 1, kCount = 3;
  for_each_case([](const Case& each) {
    if (each.mixes_samples) return;
    const Tensors whole = all_inputs(each, false), results = run(each, false, whole);
    Tensors some;
    for (size_t i = 0; i < whole.size(); ++i) {
      if (each.inputs[i].batch_axis == -2) return;  // a mixed input has no part that belongs to some samples
      some.push_back(part_of(whole[i], each.inputs[i], kFirst, kCount));
    }
    // Weights of mixed outputs have no such part either; they do not touch the outputs with a batch axis.
    const Tensors parts = run(each, false, some, kCount, kFirst);
    for (size_t i = 0; i < each.outputs.size(); ++i) {
      if (each.outputs[i].batch_axis == -2) continue;
      CAPTURE(i);
      CHECK(difference(parts[i], part_of(results[i], each.outputs[i], kFirst, kCount)) < 1e-6);
    }
  });
}

TEST_CASE("outputs depend on the elements of the inputs as the entries say") {
  // As ops::Dependence numbers them.
  enum { kAny, kElement, kSameOrder, kAlongAxis, kRepeated };
  size_t seen[5] = {};
  for_each_case([&](const Case& each) {
    ++seen[each.dependence];
    if (each.dependence == kAny) return;
    const Tensors inputs = all_inputs(each, false);
    const at::Tensor output = run(each, false, inputs)[0];
    if (each.dependence == kSameOrder) CHECK(output.flatten().equal(inputs[0].flatten()));
    if (each.dependence == kAlongAxis) CHECK(output.sizes() == inputs[0].sizes());
    if (each.dependence == kRepeated) CHECK(output.equal(inputs[0].expand(output.sizes())));
    if (each.dependence == kSameOrder || each.dependence == kRepeated) return;
    // What is reversed along an axis on the way in is reversed on the way out.
    for (int64_t from_end = 1; from_end <= output.dim(); ++from_end) {
      CAPTURE(from_end);
      if (each.dependence == kAlongAxis && (each.axis == -from_end || each.axis == output.dim() - from_end)) continue;
      Tensors reversed = inputs;
      for (at::Tensor& input : reversed)
        if (input.dim() >= from_end) input = input.flip({-from_end}).contiguous();
      CHECK(difference(run(each, false, reversed)[0], output.flip({-from_end})) < 1e-6);
    }
  });
  CHECK(seen[kElement] > 50);
  CHECK(seen[kSameOrder] > 5);
  CHECK(seen[kAlongAxis] > 2);
  CHECK(seen[kRepeated] >= 2);
}

TEST_CASE("gradients equal autograd through the emitted forward") {
  for_each_case([](const Case& each) {
    if (each.differentiated.empty()) return;
    Tensors inputs = all_inputs(each, true);
    const Tensors results = run(each, true, inputs);
    for (int input : each.differentiated) inputs[static_cast<size_t>(input)].requires_grad_(true);
    const at::Tensor sum = weighted_sum(each, inputs, run(each, true, inputs));
    if (!sum.requires_grad()) {
      // LibTorch has no kernel for regions: the central differences below check ours alone.
      if (std::string_view(each.name).starts_with("RoiAlign/")) return;
      FAIL_CHECK("autograd does not see through ", std::string(each.name));
      return;
    }
    sum.backward();
    for (size_t i = 0; i < each.differentiated.size(); ++i) {
      CAPTURE(each.differentiated[i]);
      const at::Tensor& leaf = inputs[static_cast<size_t>(each.differentiated[i])];
      const at::Tensor expected = leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf);
      CHECK(difference(results[each.outputs.size() + i], expected) < 1e-9);
    }
  });
}

TEST_CASE("gradients equal central differences in float64") {
  for_each_case([](const Case& each) {
    const Tensors inputs = all_inputs(each, true), results = run(each, true, inputs);
    for (size_t i = 0; i < each.differentiated.size(); ++i) {
      CAPTURE(each.differentiated[i]);
      const at::Tensor& found = results[each.outputs.size() + i];
      const auto input = static_cast<size_t>(each.differentiated[i]);
      CHECK(difference(found, central_differences(each, inputs, input, found)) < 1e-6);
    }
  });
}

TEST_CASE("a gradient of zero stays zero behind the logarithm of zero, and of NaN shows it") {
  bool is_there = false;
  for_each_case([&](const Case& each) {
    if (std::string_view(each.name) != "LogGrad/0") return;
    is_there = true;
    const at::Tensor zeros = at::zeros_like(input_tensor(each.inputs[0], false));
    CHECK(run(each, false, {zeros, zeros})[0].eq(0).all().item<bool>());
    const at::Tensor undefined = at::full_like(zeros, std::numeric_limits<double>::quiet_NaN());
    CHECK(run(each, false, {zeros, undefined})[0].isnan().all().item<bool>());
  });
  CHECK(is_there);
}

}  // namespace graphpipe::ops_run
