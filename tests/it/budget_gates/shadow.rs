//! Limits that only count, wherever they are judged.

use super::lab::body;
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_r23_r24_shadows_are_counted_on_every_path_and_hide_no_other_limit() {
    const BURST: u64 = 10;
    const OVER: u64 = 10;
    const TENANT_BURST: u64 = 200;
    let _alone = ALONE.lock().await;
    let limits = format!(
        "ingestion_rate: 0.001, ingestion_burst_size: {TENANT_BURST}, \
         client_identity_ingestion_rate_limit: 0.001, \
         client_identity_ingestion_burst_size: {BURST}, client_identity_ingestion_shadow: true"
    );
    let flags = ["-client-identity.enabled", "-client-identity.owner-timeout=2s"];
    let lab = Lab::start(2, &limits, &flags).await;
    let (driver, one) = (lab.driver(), body(1));
    // By the owner's account, and elsewhere by what the owner has denied.
    for gate in [0, 1] {
        let client = lab.client_of(0, &format!("writer-{gate}")).await;
        // The look for it was its first sample.
        for sample in 1..BURST + OVER {
            let told = driver.push(gate, Some(&client), &one).await;
            assert_eq!(told.status, 200, "sample {sample}: nothing is refused in the shadow");
        }
        let name = "freehold_distributor_client_shadow_refused_total{user=\"team\"}";
        assert_eq!(lab.gates[gate].metric(name).await, Some(OVER as f64), "gate {gate}");
    }
    // The tenant's own limit is no shadow: each gate has it whole.
    let mut admitted = 0;
    while driver.push(1, Some("another"), &one).await.status == 200 {
        admitted += 1;
        assert!(admitted <= TENANT_BURST, "the tenant's limit is skipped");
    }
    assert_eq!(driver.push(1, Some("another"), &one).await.status, 429);
}
