/** The objects of a rendered chart, as far as tests look at them. */
import { z } from "zod";

const labels = z.record(z.string(), z.string());
const metadata = z.looseObject({ name: z.string() });

/** Any object. */
export const objectSchema = z.looseObject({
  apiVersion: z.string(),
  kind: z.string(),
  metadata,
});
/** Any object: {@link objectSchema}, read. */
export type KubernetesObject = z.output<typeof objectSchema>;

const items = z.array(z.looseObject({ key: z.string() }));
const volume = z.looseObject({
  secret: z.looseObject({ secretName: z.string(), items: items.optional() })
    .optional(),
  projected: z.looseObject({
    sources: z.array(z.looseObject({
      secret: z.looseObject({ items }).optional(),
    })),
  }).optional(),
});

const container = z.looseObject({
  image: z.string(),
  env: z.array(z.looseObject({
    name: z.string(),
    value: z.string().optional(),
  })).default([]),
  ports: z.array(z.looseObject({ name: z.string() })).default([]),
  securityContext: z.unknown(),
  resources: z.looseObject({
    limits: z.looseObject({ memory: z.string() }),
    requests: z.looseObject({ cpu: z.string() }),
  }),
  lifecycle: z.looseObject({
    preStop: z.looseObject({
      sleep: z.looseObject({ seconds: z.number() }),
    }),
  }).optional(),
});
/** The container of a service: {@link workloadSchema} has it. */
export type Container = z.output<typeof container>;

/** A Deployment or a StatefulSet. */
export const workloadSchema = objectSchema.extend({
  spec: z.looseObject({
    template: z.looseObject({
      metadata: z.looseObject({ labels, annotations: labels.default({}) }),
      spec: z.looseObject({
        automountServiceAccountToken: z.boolean(),
        terminationGracePeriodSeconds: z.number(),
        securityContext: z.looseObject({
          runAsNonRoot: z.boolean(),
          seccompProfile: z.looseObject({ type: z.string() }),
        }),
        containers: z.tuple([container]),
        volumes: z.array(volume).default([]),
      }),
    }),
  }),
});
/** A Deployment or a StatefulSet: {@link workloadSchema}, read. */
export type Workload = z.output<typeof workloadSchema>;

/** A Service. */
export const serviceSchema = objectSchema.extend({
  spec: z.looseObject({
    selector: labels,
    ports: z.array(z.looseObject({ targetPort: z.string() })),
  }),
});

/** A PodDisruptionBudget or a PodMonitor. */
export const selectingSchema = objectSchema.extend({
  spec: z.looseObject({ selector: z.looseObject({ matchLabels: labels }) }),
});

/** A NetworkPolicy. */
export const policySchema = objectSchema.extend({
  spec: z.looseObject({
    podSelector: z.looseObject({ matchLabels: labels }),
    policyTypes: z.array(z.string()),
    ingress: z.array(z.unknown()),
    egress: z.array(z.looseObject({
      to: z.unknown().optional(),
      ports: z.array(z.looseObject({
        port: z.union([z.number(), z.string()]),
        endPort: z.number().optional(),
      })).default([]),
    })),
  }),
});

/** A ConfigMap. */
export const configMapSchema = objectSchema.extend({ data: labels });

/** A PrometheusRule. */
export const ruleSchema = objectSchema.extend({
  spec: z.looseObject({
    groups: z.array(z.looseObject({ rules: z.array(z.unknown()) })),
  }),
});
