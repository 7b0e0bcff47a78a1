#include "driver/report/compare_tensors.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "support/half_float.h"
#include "support/text.h"

using namespace graphpipe;

namespace {

// A safetensors file with one tensor of these bits.
std::string file_of(const std::string& name, const std::string& dtype, const std::vector<uint16_t>& bits) {
  const std::string path = text(std::filesystem::temp_directory_path().string(), "/graphpipe-compare-", name);
  const size_t bytes = bits.size() * sizeof(uint16_t);
  const std::string header =
      text(R"({"w":{"dtype":")", dtype, R"(","shape":[)", bits.size(), R"(],"data_offsets":[0,)", bytes, "]}}");
  const auto length = static_cast<uint64_t>(header.size());
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << header;
  out.write(reinterpret_cast<const char*>(bits.data()), static_cast<std::streamsize>(bytes));
  return path;
}

double difference(const std::string& dtype, const std::vector<uint16_t>& a, const std::vector<uint16_t>& b) {
  const std::string first = file_of("a", dtype, a), second = file_of("b", dtype, b);
  const auto found = driver::compare_tensors(first, second, {});
  std::filesystem::remove(first);
  std::filesystem::remove(second);
  REQUIRE(found.ok());
  return found->difference;
}

}  // namespace

TEST_CASE("16-bit numbers are read as what they are") {
  CHECK(float_of_bfloat(0x3f80) == 1);
  CHECK(float_of_bfloat(0xc040) == -3);
  CHECK(float_of_half(0x3c00) == 1);
  CHECK(float_of_half(0xc200) == -3);
  CHECK(float_of_half(0x0001) == doctest::Approx(5.9604644775390625e-8).epsilon(1e-15));
}

TEST_CASE("tensors of 16-bit numbers differ by their numbers, not by their bytes") {
  // 1 and 1 + 2^-7: one unit in the last place, which in bytes is 0x80 against 0x81.
  CHECK(difference("BF16", {0x3f80}, {0x3f80}) == 0);
  CHECK(difference("BF16", {0x3f81}, {0x3f80}) == doctest::Approx(1.0 / 128));
  CHECK(difference("F16", {0x3c01}, {0x3c00}) == doctest::Approx(1.0 / 1024));
  // 0.99609375 and 1 are neighbours although no byte of them agrees.
  CHECK(difference("BF16", {0x3f7f}, {0x3f80}) == doctest::Approx(1.0 / 256));
  CHECK(difference("F16", {0x3c00}, {0x4000}) == doctest::Approx(0.5));
}

namespace {

using Floats = std::vector<float>;

// A safetensors file of float vectors.
class TensorFile {
 public:
  TensorFile(const std::string& name, const std::map<std::string, Floats>& tensors)
      : path_(text(std::filesystem::temp_directory_path().string(), "/graphpipe-compare-", getpid(), "-", name)) {
    std::string header, data;
    for (const auto& [tensor, values] : tensors) {
      const size_t begin = data.size();
      data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
      header += text(header.empty() ? "" : ",", '"', tensor, R"(":{"dtype":"F32","shape":[)", values.size(),
                     R"(],"data_offsets":[)", begin, ",", data.size(), "]}");
    }
    header = "{" + header + "}";
    const auto length = static_cast<uint64_t>(header.size());
    std::ofstream out(path_, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << header << data;
  }
  TensorFile(const TensorFile&) = delete;
  ~TensorFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

constexpr double kTolerance = 1e-4;

// A layer whose weight has gradients, and a key bias whose gradient is noise; v of AdamW is their square.
constexpr float kGradient = 1e-3F, kNoise = 1e-9F, kRate = 1e-3F;
const std::map<std::string, Floats> kGradients{{"layer.weight", Floats(400, kGradient)},
                                               {"key.bias", Floats(16, kNoise)}};
const std::map<std::string, Floats> kMoments{{"layer.weight", Floats(400, kGradient* kGradient)},
                                             {"key.bias", Floats(16, kNoise* kNoise)}};
const std::map<std::string, Floats> kWeights{{"layer.weight", Floats(400, 0.02F)}, {"key.bias", Floats(16, kRate)}};

// What kWeights were before the step.
std::map<std::string, Floats> before(bool adam, float rate) {
  std::map<std::string, Floats> weights = kWeights;
  for (auto& [tensor, values] : weights)
    for (size_t i = 0; i < values.size(); ++i) values[i] += rate * (adam ? 1 : kGradients.at(tensor)[i]);
  return weights;
}

// How far these weights are from kWeights after a step that begins with `start`.
driver::Comparison compared(const std::map<std::string, Floats>& weights, const std::map<std::string, Floats>& start,
                            bool adam, float rate, double momentum = 0,
                            const std::map<std::string, double>& differences = {}) {
  const TensorFile mine("mine", weights), theirs("theirs", kWeights), gradients("gradients", kGradients),
      moments("moments", kMoments), begun("before", start);
  driver::UpdateNoise noise{.learning_rate = rate,
                            .momentum = momentum,
                            .beta1 = 0.9,
                            .beta2 = 0.999,
                            .epsilon = 1e-12,
                            .before = begun.path(),
                            .gradient_differences = differences};
  (adam ? noise.second_moments : noise.gradients) = adam ? moments.path() : gradients.path();
  const auto found = driver::compare_tensors(mine.path(), theirs.path(), {.usual = kTolerance}, noise);
  REQUIRE(found.ok());
  return *found;
}

// The same where one element of `tensor` differs by `change`.
driver::Comparison changed(const std::string& tensor, float change, bool adam) {
  std::map<std::string, Floats> weights = kWeights;
  weights.at(tensor)[5] += change;
  return compared(weights, before(adam, kRate), adam, kRate);
}

}  // namespace

TEST_CASE("AdamW's update of a gradient that is all noise may be any, where there is a gradient it may not") {
  CHECK(changed("key.bias", 2 * kRate, true).difference == 0);
  // Further than any update goes.
  CHECK(changed("key.bias", 100 * kRate, true).difference > kTolerance);
  // One element whose update has the wrong sign, of a tensor of 400 and of a tensor of 16.
  CHECK(changed("layer.weight", 2 * kRate, true).difference > kTolerance);
  CHECK(changed("layer.weight", 0.05F * kRate, true).difference > kTolerance);
  CHECK(changed("layer.weight", 1e-7F, true).difference <= kTolerance);
  // SGD does not normalise: noise stays noise, and a wrong update of a weight is seen whatever its gradient.
  CHECK(changed("key.bias", 2 * kRate, false).difference > kTolerance);
  CHECK(changed("layer.weight", 2 * kRate * kGradient, false).difference > kTolerance);
  CHECK(changed("layer.weight", 1e-9F, false).passed());
}

TEST_CASE("where gradients are seen to agree, an update of noise that differs is none of theirs") {
  std::map<std::string, Floats> weights = kWeights;
  weights.at("key.bias")[5] += 2 * kRate;
  const auto start = before(true, kRate);
  const std::map<std::string, double> alike{{"key.bias", 1e-14}, {"layer.weight", 1e-12}},
      noisy{{"key.bias", 1e-8}, {"layer.weight", 1e-12}};
  CHECK(compared(weights, start, true, kRate, 0, alike).difference > kTolerance);
  CHECK(compared(weights, start, true, kRate, 0, noisy).difference == 0);
  // Never more than the tolerance explains.
  weights = kWeights;
  weights.at("layer.weight")[5] += 0.05F * kRate;
  CHECK(compared(weights, start, true, kRate, 0, {{"layer.weight", 1}}).difference > kTolerance);
}

TEST_CASE("the worst tensor is named with the element that differs most and both values") {
  const driver::Comparison comparison = changed("layer.weight", 0.01F, false);
  REQUIRE(comparison.worst);
  CHECK(comparison.worst->tensor.raw() == "layer.weight");
  CHECK(comparison.worst->index == "[5]");
  CHECK(comparison.worst->found == doctest::Approx(0.03));
  CHECK(comparison.worst->expected == doctest::Approx(0.02));
  CHECK_FALSE(changed("layer.weight", 0, false).worst);
}

TEST_CASE("elements of a large tensor are compared with those at their own places") {
  constexpr size_t kMany = 30001;  // several blocks (stored_numbers.h)
  Floats weights(kMany), start(kMany), moments(kMany);
  for (size_t i = 0; i < kMany; ++i) {
    weights[i] = static_cast<float>(i);
    start[i] = weights[i] + kRate;
    moments[i] = i < kMany - 2 ? kGradient * kGradient : 0;  // the last two have no gradient to speak of
  }
  const auto after = [&](size_t place, float change) {
    Floats changed = weights;
    changed[place] += change;
    const TensorFile mine("mine", {{"w", changed}}), theirs("theirs", {{"w", weights}}),
        noise("moments", {{"w", moments}}), begun("before", {{"w", start}});
    const driver::UpdateNoise adam{.learning_rate = kRate,
                                   .beta1 = 0.9,
                                   .beta2 = 0.999,
                                   .epsilon = 1e-12,
                                   .second_moments = noise.path(),
                                   .before = begun.path()};
    const auto found = driver::compare_tensors(mine.path(), theirs.path(), {.usual = kTolerance}, adam);
    REQUIRE(found.ok());
    return *found;
  };
  CHECK(after(kMany / 2, 0).difference == 0);
  const driver::Comparison worst = after(kMany - 3, 1);
  REQUIRE(worst.worst);
  CHECK(worst.worst->index == text("[", kMany - 3, "]"));
  CHECK(worst.worst->found == kMany - 2);
  CHECK(worst.worst->expected == kMany - 3);
  // More than a unit in the last place, which only a gradient that is all noise explains.
  CHECK(after(kMany - 1, 0.006F).difference == 0);
  CHECK(after(kMany - 3, 0.006F).difference > 0);
}

TEST_CASE("tensors that are missing, of another shape or undefined differ without a limit") {
  const TensorFile both("both", {{"a", Floats{1, 2}}, {"b", Floats{1}}}), one("one", {{"a", Floats{1, 2}}}),
      longer("longer", {{"a", Floats{1, 2}}, {"b", Floats{1, 1}}}),
      undefined("undefined", {{"a", Floats{1, NAN}}, {"b", Floats{1}}});
  for (const TensorFile* other : {&one, &longer, &undefined}) {
    const auto there = driver::compare_tensors(both.path(), other->path(), {});
    const auto back = driver::compare_tensors(other->path(), both.path(), {});
    REQUIRE(there.ok());
    REQUIRE(back.ok());
    CHECK(there->difference == INFINITY);
    CHECK(back->difference == INFINITY);
    CHECK(back->worst->tensor.raw() == (other == &undefined ? "a" : "b"));
  }
}

TEST_CASE("a parameter that is not stepped, or twice, fails at a learning rate that hardly moves it") {
  constexpr float kLow = 1e-5F;
  for (const bool adam : {false, true}) {
    CAPTURE(adam);
    // With SGD the gradient of 1e-3 moves the weight by 1e-8, five units in its last place.
    const std::map<std::string, Floats> start = before(adam, kLow);
    CHECK(compared(kWeights, start, adam, kLow).passed());
    std::map<std::string, Floats> weights = kWeights;
    weights.at("layer.weight") = start.at("layer.weight");
    const driver::Comparison unstepped = compared(weights, start, adam, kLow);
    CHECK_FALSE(unstepped.passed());
    CHECK(unstepped.difference == doctest::Approx(1).epsilon(0.3));
    REQUIRE(unstepped.worst);
    CHECK(unstepped.worst->tensor.raw() == "layer.weight");
    CHECK_FALSE(compared(weights, start, adam, kLow, 0.9).passed());
    for (size_t i = 0; i < weights.at("layer.weight").size(); ++i)
      weights.at("layer.weight")[i] = 2 * kWeights.at("layer.weight")[i] - start.at("layer.weight")[i];
    CHECK_FALSE(compared(weights, start, adam, kLow).passed());
    // Of the norm of the weights it is less than the tolerance.
    const TensorFile mine("mine", weights), theirs("theirs", kWeights);
    const auto plain = driver::compare_tensors(mine.path(), theirs.path(), {.usual = adam ? 1e-3 : kTolerance});
    REQUIRE(plain.ok());
    CHECK(plain->passed());
  }
}

TEST_CASE("weights may differ by one rounding, however small their update is") {
  std::map<std::string, Floats> weights = kWeights;
  for (float& weight : weights.at("layer.weight")) weight = std::nextafter(weight, 1.0F);
  CHECK(compared(weights, before(false, 1e-6F), false, 1e-6F).passed());
  for (float& weight : weights.at("layer.weight")) weight = std::nextafter(std::nextafter(weight, 1.0F), 1.0F);
  CHECK_FALSE(compared(weights, before(false, 1e-6F), false, 1e-6F).passed());
}

TEST_CASE("each tensor has its own tolerance, and the worst is the one that exceeds its own most") {
  const TensorFile mine("mine", {{"coarse", Floats{1.01F}}, {"fine", Floats{1.001F}}}),
      theirs("theirs", {{"coarse", Floats{1}}, {"fine", Floats{1}}});
  const auto found = driver::compare_tensors(mine.path(), theirs.path(), {.usual = 1e-4, .looser = {{"coarse", 0.05}}});
  REQUIRE(found.ok());
  CHECK_FALSE(found->passed());
  CHECK(found->worst->tensor.raw() == "fine");
  CHECK(found->difference == doctest::Approx(1e-3).epsilon(1e-3));
  CHECK(found->tolerance == 1e-4);
}

TEST_CASE(
    "a tensor that is noise of 16 bits is measured against the part of the largest norm that its tolerance says") {
  const TensorFile reference("reference", {{"large", {1, 0}}, {"noise", {1e-5F, 2e-5F}}});
  const TensorFile noisy("found", {{"large", {1, 0}}, {"noise", {3e-4F, -1e-4F}}});
  driver::TensorTolerance tolerance{.usual = 0.01, .looser = {}, .floors = {}};
  CHECK_FALSE(driver::compare_tensors(noisy.path(), reference.path(), tolerance)->passed());
  tolerance.floors["noise"] = 0.2;
  CHECK(driver::compare_tensors(noisy.path(), reference.path(), tolerance)->passed());
  // More than that is still a fault.
  const TensorFile wrong("wrong", {{"large", {1, 0}}, {"noise", {3e-3F, -1e-4F}}});
  CHECK_FALSE(driver::compare_tensors(wrong.path(), reference.path(), tolerance)->passed());
}
