#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tightloop {

/// Values begin to end - 1 of a dense parameter.
struct ParameterPiece {
  size_t parameter;
  int64_t begin, end;
  int64_t size() const { return end - begin; }
  bool operator==(const ParameterPiece&) const = default;
};

/// What a plan needs to know of a parameter.
struct PlannedParameter {
  int64_t size = 0;  // values
  c10::ScalarType dtype = c10::ScalarType::Float;
  /// Rows and columns of the matrices stacked in it that one process must have whole (Muon's). None: it can
  /// be cut anywhere.
  struct Matrix {
    int64_t rows, columns;
  };
  std::vector<Matrix> matrices{};
};

/// Gradients that travel together.
struct BucketExtent {
  static constexpr int kSliced = -1;

  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<ParameterPiece> pieces{};
  std::vector<int64_t> offsets{};  // of the pieces in the bucket
  int64_t size = 0;                // values, with zeros between and behind pieces
  int owner = kSliced;             // who updates them; kSliced: the rank-th of equal slices is each one's
};

/// Which gradients travel together, and which process updates what: the same in every process, because it
/// depends on the parameters alone. Buckets are in the order in which backward completes them: that of the
/// parameters, reversed.
class ShardPlan {
 public:
  struct Options {
    int64_t bytes = 25 << 20;  // of a bucket, or one gradient that is larger
    int world = 1, rank = 0;   // of the processes, and this one
    bool sharded = false;      // else everybody updates everything
  };
  /// Every parameter begins at a multiple of so many bytes, as tensors of their own do on GPUs: kernels take
  /// the same path and round the same way. So do the slices of a bucket.
  static constexpr int64_t kAlignment = 512;

  ShardPlan(const std::vector<PlannedParameter>& parameters, const Options& options);

  const std::vector<BucketExtent>& buckets() const { return buckets_; }
  bool sharded() const { return options_.sharded; }
  int world() const { return options_.world; }
  int rank() const { return options_.rank; }
  /// Values of a process's slice of a bucket.
  int64_t slice(const BucketExtent& bucket) const { return bucket.size / options_.world; }

  /// A piece that a process updates, and where it is: in its slice (kSliced) or in the bucket.
  struct Own {
    size_t bucket;
    int64_t offset;
    ParameterPiece piece;
  };
  /// Of this process, in the order of the parameters. Where nothing is sharded, all of them.
  const std::vector<Own>& own() const { return own_; }
  /// Of any process.
  std::vector<Own> own(int rank) const;

 private:
  void add_whole_matrices(size_t index, const PlannedParameter& parameter);
  void add_sliced(size_t index, const PlannedParameter& parameter);
  void choose_owners(const std::vector<PlannedParameter>& parameters);

  const Options options_;
  std::vector<BucketExtent> buckets_;
  std::vector<Own> own_;
};

/// What Muon's update of a matrix costs, in multiplications.
double muon_cost(const PlannedParameter::Matrix& matrix);

}  // namespace tightloop
