#include "train/dist_config.h"

#include "core/config.h"

namespace tightloop {

void DistConfig::describe(Fields& fields) {
  fields.add(
      "shard", shard,
      "What of the training state is divided among processes; checkpoints are the same, and any number "
      "of processes can go on from them");
  fields.add("reduce", reduce, "The dtype in which gradients are added up over processes");
  fields.add("overlap", overlap,
             "Gradients travel while backward makes the next ones, weights (dist.shard) while forward reads "
             "those of earlier layers; false: all at once in between");
  fields
      .add("bucket_mb", bucket_mb,
           "MiB of gradients that travel together; a larger single gradient travels alone")
      .range(0.001, 1e5);
  fields.add("backend", backend, "What carries the tensors of GPUs; on the CPU it is always Gloo");
}

}  // namespace tightloop
