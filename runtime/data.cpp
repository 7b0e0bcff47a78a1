#include "runtime/data.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ne.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/error.h"
#include "runtime/tensors.h"
#include "support/check.h"

namespace graphpipe::runtime {
namespace {

std::string file_name(std::string_view name) {
  std::string out;
  for (char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    out += plain || c == '_' || c == '.' || c == '-' ? c : '_';
  }
  return out + ".npy";
}

// The row's dims with the batch axis first, as files store them.
std::vector<int64_t> stored_dims(const DataRow& row, int64_t samples) {
  std::vector<int64_t> dims = shape_of(row.tensor, samples);
  if (row.tensor.batch_axis > 0)
    std::rotate(dims.begin(), dims.begin() + row.tensor.batch_axis, dims.begin() + row.tensor.batch_axis + 1);
  return dims;
}

at::Tensor batch_axis_in_place(at::Tensor stored, const DataRow& row) {
  if (row.tensor.batch_axis <= 0) return stored;
  return stored.movedim(0, row.tensor.batch_axis).contiguous();
}

class NpyFolder : public Data {
 public:
  explicit NpyFolder(std::string folder) : folder_(std::move(folder)) {}

  at::Tensor item(const DataRow& row, int64_t batch, int64_t step, wire::SampleRange range) override {
    const NpyFile& file = open(row);
    const bool whole = row.tensor.batch_axis < 0;
    at::Tensor stored = at::empty(stored_dims(row, range.size()),
                                  at::TensorOptions().dtype(scalar_type(row.tensor.type)));
    auto* to = bytes_in(stored).data();
    if (whole) {
      if (stored.nbytes() > 0) std::memcpy(to, file.data(), stored.nbytes());
      return stored;
    }
    const int64_t rows = row.tensor.rows_per_sample;
    const int64_t length = file.header().dims[0] / rows;  // in samples, positive
    const size_t sample_bytes = range.empty() ? 0 : stored.nbytes() / static_cast<size_t>(range.size());
    // A run of consecutive samples at a time; the data starts again where it ends.
    for (int64_t sample = range.first; sample < range.last;) {
      const int64_t at = (step % length * (batch % length) + sample) % length;
      const int64_t run = std::min(range.last - sample, length - at);
      const auto bytes = static_cast<size_t>(run) * sample_bytes;
      if (bytes > 0) std::memcpy(to, file.data() + static_cast<size_t>(at) * sample_bytes, bytes);
      to += bytes;
      sample += run;
    }
    return batch_axis_in_place(std::move(stored), row);
  }

 private:
  const NpyFile& open(const DataRow& row) {
    const auto found = files_.find(row.name);
    if (found != files_.end()) return found->second;
    const std::string path = folder_ + "/" + file_name(row.name);
    struct stat info {};
    if (stat(path.c_str(), &info) != 0)
      fail(Code::kBadData, "the data folder has no " + quoted(ModelText(file_name(row.name))),
           "write one .npy file per model input and label, first axis samples");
    NpyFile file(path);
    check(row, file);
    return files_.emplace(row.name, std::move(file)).first->second;
  }

  static void check(const DataRow& row, const NpyFile& file) {
    const NpyHeader& header = file.header();
    const bool whole = row.tensor.batch_axis < 0;
    const std::vector<int64_t> expected = stored_dims(row, 1);
    const size_t from = whole ? 0 : 1;
    const bool same_rest = header.dims.size() == expected.size() &&
                           std::equal(expected.begin() + from, expected.end(), header.dims.begin() + from);
    const bool has_samples = whole || (!header.dims.empty() && header.dims[0] > 0 &&
                                       header.dims[0] % row.tensor.rows_per_sample == 0);
    if (header.type == row.tensor.type && same_rest && has_samples) return;
    std::string wanted = shape_text(expected);
    if (!whole) wanted += " with any number of samples in place of the first";
    fail(Code::kBadData,
         text(quoted(ModelText(file_name(row.name))), " holds ", element_name(header.type), shape_text(header.dims),
              "; the model takes ", element_name(row.tensor.type), wanted),
         "write the file again with this type and shape");
  }

  std::string folder_;
  std::map<std::string, NpyFile> files_;
};

uint64_t mix(uint64_t x) {  // the finalizer of SplitMix64 (Steele, Lea, Flood 2014)
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

double uniform(uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53; }

double normal(uint64_t key) {  // Box and Muller 1958
  return std::sqrt(-2 * std::log(uniform(mix(key)))) * std::cos(6.283185307179586 * uniform(mix(~key)));
}

class Synthetic : public Data {
 public:
  explicit Synthetic(uint64_t seed) : seed_(seed) {}

  at::Tensor item(const DataRow& row, int64_t, int64_t, wire::SampleRange range) override {
    const bool is_float = c10::isFloatingType(scalar_type(row.tensor.type));
    at::Tensor values = at::empty(stored_dims(row, range.size()),
                                  at::TensorOptions().dtype(is_float ? at::kDouble : at::kLong));
    uint64_t key = mix(seed_);
    for (const char* c = row.name; *c != '\0'; ++c) key = mix(key ^ static_cast<unsigned char>(*c));
    const bool whole = row.tensor.batch_axis < 0;
    const int64_t samples = whole ? 1 : range.size();
    const int64_t per_sample = samples == 0 ? 0 : values.numel() / samples;
    for (int64_t i = 0; i < samples * per_sample; ++i) {
      const auto sample = static_cast<uint64_t>(whole ? 0 : range.first + i / per_sample);
      const uint64_t bits = mix(mix(key ^ sample) + static_cast<uint64_t>(i % per_sample));
      if (is_float) values.mutable_data_ptr<double>()[i] = normal(bits);
      else values.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(bits % static_cast<uint64_t>(row.limit));
    }
    return batch_axis_in_place(values.to(scalar_type(row.tensor.type)), row);
  }

 private:
  uint64_t seed_;
};

}  // namespace

std::unique_ptr<Data> npy_folder(const std::string& folder) {
  struct stat info {};
  if (stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    fail(Code::kUnreadableFile, quoted(ModelText(folder)) + " is not a folder", "pass the data folder with --data");
  return std::make_unique<NpyFolder>(folder);
}

std::unique_ptr<Data> synthetic_data(uint64_t seed) { return std::make_unique<Synthetic>(seed); }

double loss_divisor(const PlanTable& plan, Data& data, int64_t step, wire::SampleRange update) {
  const LossRow& loss = plan.loss;
  switch (loss.normalizer) {
    case LossRow::Normalizer::kOne:
      return 1;
    case LossRow::Normalizer::kSamples:
      return static_cast<double>(update.size()) * static_cast<double>(loss.elements_per_sample);
    case LossRow::Normalizer::kCountedPositions:
      break;
  }
  GP_CHECK(loss.label.name != nullptr);
  const at::Tensor labels = data.item(loss.label, plan.batch, step, update);
  const int64_t counted =
      loss.has_ignore_index ? labels.ne(loss.ignore_index).sum().item<int64_t>() : labels.numel();
  return static_cast<double>(counted) * static_cast<double>(loss.elements_per_sample);
}

LossScales::LossScales(const PlanTable& plan, Data& data, int64_t step)
    : updates_(plan.loss_updates.begin(), plan.loss_updates.end()) {
  if (updates_.empty()) updates_.push_back({0, plan.batch});
  for (const wire::SampleRange& update : updates_) {
    divisors_.push_back(loss_divisor(plan, data, step, update));
    total_ += divisors_.back();
  }
}

double LossScales::divisor(wire::SampleRange item) const {
  for (size_t i = 0; i < updates_.size(); ++i)
    if (wire::intersect(item, updates_[i]) == item) return divisors_[i];
  GP_CHECK(false);
  return 0;
}

double LossScales::share(wire::SampleRange item) const { return divisors_.size() == 1 ? 1 : divisor(item) / total_; }

double update_factor(const PlanTable& plan, wire::SampleRange update) {
  double covered = 0;  // updates of the loss
  for (const wire::SampleRange& of_loss : plan.loss_updates)
    covered += static_cast<double>(wire::intersect(update, of_loss).size()) / static_cast<double>(of_loss.size());
  return covered > 0 ? 1 / covered : 1;
}

}  // namespace graphpipe::runtime
