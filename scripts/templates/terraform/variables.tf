# ./scripts/setup.sh --tfvars prints values of these, out of config.env.

variable "tenancy_ocid" {
  type        = string
  description = "OCID of the tenancy: groups and the policy are there"
}

variable "region" {
  type        = string
  description = "such as us-ashburn-1"
}

variable "compartment_ocid" {
  type        = string
  description = "OCID of the compartment of the Jobs, the bucket and the log group: COMPARTMENT_OCID"
}

variable "images_compartment_ocid" {
  type        = string
  default     = ""
  description = "OCID of the compartment of the repositories; empty: that of the Jobs"
}

variable "network_compartment_ocid" {
  type        = string
  default     = ""
  description = "OCID of the compartment of the subnet; empty: that of the Jobs"
}

variable "people_group" {
  type        = string
  default     = "data-scientists"
  description = "the group of those who launch: PEOPLE_GROUP"
}

variable "nodes_group" {
  type        = string
  default     = "cluster-runs"
  description = "the dynamic group of the Job Runs: NODES_GROUP"
}

variable "policy_name" {
  type        = string
  default     = "clusters"
  description = "the policy in the root compartment: POLICY_NAME"
}

variable "namespace" {
  type        = string
  description = "namespace of Object Storage"
}

variable "bucket" {
  type        = string
  description = "the bucket of WORK_DIR"
}

variable "prefix" {
  type        = string
  default     = ""
  description = "the path of WORK_DIR in the bucket, without a slash at its end; empty: the whole bucket"
}

variable "keep_clusters_days" {
  type        = number
  default     = 90
  description = "after so many days the bucket deletes what is below the prefix; 0: never: KEEP_CLUSTERS_DAYS"
}

variable "repositories" {
  type        = list(string)
  description = "names of the images' repositories, such as training/dask"
}

variable "secrets_compartment_ocid" {
  type        = string
  default     = ""
  description = "OCID of the compartment of the secrets; empty: that of the Jobs"
}

variable "secrets" {
  type        = list(string)
  default     = []
  description = "OCIDs of secrets of OCI Vault that nodes read: those of VAULT_SECRETS"
}

variable "uses_logging" {
  type        = bool
  default     = true
  description = "whether nodes write to OCI Logging"
}

variable "log_group_name" {
  type        = string
  default     = "clusters"
  description = "the log group; empty: none is made: LOG_GROUP_NAME"
}

variable "log_group_ocid" {
  type        = string
  default     = ""
  description = "OCID of a log group that is there: LOG_GROUP_OCID"
}

variable "log_name" {
  type        = string
  default     = "nodes"
  description = "the log of all nodes; empty: none is made, as with LOG_OCID"
}

variable "vcn_ocid" {
  type        = string
  default     = ""
  description = "OCID of the VCN of the subnet; only with subnet_cidr"
}

variable "subnet_cidr" {
  type        = string
  default     = ""
  description = "addresses of the subnet, several blocks with commas between; empty: no security list is made"
}

variable "node_ports" {
  type        = list(object({ min = number, max = number }))
  default     = [{ min = 1, max = 65535 }]
  description = "the ports on which nodes reach each other; by default all, as PyTorch, Horovod and Ray need"
}

variable "defined_tags" {
  type        = map(string)
  default     = {}
  description = "values of the tags of all that is made, by namespace.key: DEFINED_TAGS"
}
